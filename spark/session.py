"""Spark sessions that check everything before they start, and leave nothing behind when they end.

Rules of this file: everything that can be wrong is found before anything starts. What starts here
ends here, the Java processes included, so that sessions of both kinds can follow one another in one
process. What Java and Spark keep on this node's disk is in one folder, removed at the end, because
processes that are killed cannot tidy up. There is one Spark session a process: Spark's rule.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pxrs_ray.actors.cluster.join import join_or_start
from pxrs_ray.errors import AlreadyExists, UsageError
from pxrs_ray.extras import extra
from pxrs_ray.spark.java import OPTIONS, check_java

ENDED_S_MAX = 20.0
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
MASTER_OPTIONS = "spark.ray.raydp_app_master.extraJavaOptions"
LOG4J = "log4j2.properties"
EXECUTOR_CPU = "spark.ray.raydp_spark_executor.actor.resource.cpu"

_QUIET_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = error
"""

Conf = Mapping[str, object]


@contextmanager
def spark_on_ray(
    app_name: str,
    executors: int = 1,
    cores: int = 1,
    memory: str = "1g",
    *,
    cluster_grows: bool = False,
    quiet: bool = True,
    **conf: object,
) -> Iterator[SparkSession]:
    """A Spark session whose executors are Ray actors, through RayDP; all gone at the end.

    Works on a local Ray, on a running cluster and inside `ray job submit`; Ray is started, or
    joined, when this process has none. `conf` holds further Spark options: those with dots in
    their names as `**{"spark.x.y": "z"}`. `cluster_grows` leaves out the check for CPUs and
    memory, for clusters whose autoscaler adds nodes. `quiet` keeps what Java and Spark log from
    the terminal.

    Raises, before anything starts, DependencyMissing (no Java that Spark runs on), UsageError
    (the cluster has not the CPUs or the memory) and AlreadyExists (there is a session already).
    """
    if executors < 1 or cores < 1:
        raise UsageError(f"executors={executors} and cores={cores} must be at least 1")
    _refuse_second_session()
    check_java(on_path=True)
    raydp = _raydp()
    join_or_start()
    if not cluster_grows:
        _check_cluster(executors, float(str(conf.get(EXECUTOR_CPU, cores))), memory)
    before = set(ray.util.list_named_actors())
    with _environment() as folder:
        configs = {"spark.log4j.config.file.name": str(folder / LOG4J), **_defaults(conf, folder)}
        configs[MASTER_OPTIONS] = _with_options(conf, MASTER_OPTIONS)
        if not cluster_grows and _has_one_node():
            # Ray ends executors by force, and what they keep would stay in /tmp.
            for name in (MASTER_OPTIONS, EXECUTOR_OPTIONS):
                configs[name] += _files_in(folder)
        try:
            with _stderr_into(folder / "java.log" if quiet else None):
                session = raydp.init_spark(app_name, executors, cores, memory, configs=configs)
                session.sparkContext.setLogLevel(_log_level(quiet))
            yield session
        finally:
            with logs_silenced():
                raydp.stop_spark()
                _end_java()
                _end_actors(before)


@contextmanager
def spark_local(
    app_name: str, cores: int = 2, memory: str = "1g", *, quiet: bool = True, **conf: object
) -> Iterator[SparkSession]:
    """A plain Spark session in this process, for those who want no Spark executors on Ray.

    The same calls feed queues from it: Spark's own Python workers then append (`via="push"`).
    Raises as `spark_on_ray` does.
    """
    _refuse_second_session()
    check_java(on_path=False)
    with _environment() as folder:
        builder = SparkSession.builder.appName(app_name).master(f"local[{cores}]")
        configs = {"spark.driver.memory": memory, **_defaults(conf, folder)}
        configs[DRIVER_OPTIONS] += f" -Dlog4j2.configurationFile={folder / LOG4J}"
        for name, value in configs.items():
            builder = builder.config(name, value)
        with _stderr_into(folder / "java.log" if quiet else None):
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel(_log_level(quiet))
        try:
            yield session
        finally:
            with logs_silenced():
                session.stop()
                SparkSession.builder._options.clear()
                _end_java()


def _log_level(quiet: bool) -> str:
    """What Spark logs. Its errors come as exceptions as well, and say it better."""
    return "FATAL" if quiet else "WARN"


def is_on_ray(spark: SparkSession) -> bool:
    """Whether the session's executors are RayDP's."""
    return str(spark.sparkContext.master).startswith("ray://")


def _refuse_second_session() -> None:
    running = SparkContext._active_spark_context
    if running is not None:
        raise AlreadyExists(
            f"this process has a Spark session already ({running.appName!r}): use that one, or "
            "end it with .stop() first"
        )


def _raydp() -> Any:
    with extra("spark", "Spark on Ray"):
        import raydp
    return raydp


def _with_options(conf: Conf, name: str) -> str:
    return f"{OPTIONS} {conf.get(name, '')}".strip()


def _defaults(conf: Conf, folder: Path) -> dict[str, str]:
    """The user's options, over what makes Spark quiet and its Python workers ours.

    The driver's files are in `folder`.
    """
    configs = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    configs.update({name: str(value) for name, value in conf.items()})
    for name in (DRIVER_OPTIONS, EXECUTOR_OPTIONS):
        configs[name] = _with_options(conf, name)
    configs[DRIVER_OPTIONS] += _files_in(folder)
    return configs


def _files_in(folder: Path) -> str:
    return f" -Djava.io.tmpdir={folder}"


def _has_one_node() -> bool:
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return len([node for node in nodes if node["Alive"]]) == 1


def _check_cluster(executors: int, cpus: float, memory: str) -> None:
    """Raise UsageError unless all executors find room now: RayDP would wait for ever."""
    wanted_bytes = _bytes(memory)
    room = 0
    nodes = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
    for free in nodes.values():
        by_memory = int(free.get("memory", 0.0) // wanted_bytes)
        room += min(int(free.get("CPU", 0.0) // cpus) if cpus else by_memory, by_memory)
    if room < executors:
        free_cpus = sum(node.get("CPU", 0.0) for node in nodes.values())
        free_gib = sum(node.get("memory", 0.0) for node in nodes.values()) / (1 << 30)
        raise UsageError(
            f"{executors} executors of {cpus:g} CPUs and {memory} do not fit into the Ray cluster: "
            f"{len(nodes)} nodes have {free_cpus:g} CPUs and {free_gib:.1f} GiB free, room for "
            f"{room}. Ask for fewer or smaller ones, add nodes, end what holds the CPUs (see "
            f"`ray status`), or book less CPU for each with {EXECUTOR_CPU}"
        )


def _bytes(memory: str) -> int:
    text = memory.strip().lower().removesuffix("b").removesuffix("i")
    unit = {"k": 10, "m": 20, "g": 30, "t": 40}.get(text[-1:], 0)
    number = text[:-1] if unit else text
    try:
        size = int(float(number) * (1 << unit))
    except ValueError:
        size = 0
    if size < 1:
        raise UsageError(f"memory={memory!r} is no size; write for example '1g' or '512m'")
    return size


@contextmanager
def _environment() -> Iterator[Path]:
    """A folder for as long as the session lives, and Python workers that are this Python.

    The user's own choice of PYSPARK_PYTHON stays.
    """
    ours = "PYSPARK_PYTHON" not in os.environ
    if ours:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        with tempfile.TemporaryDirectory(prefix="pxrs-spark-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            (folder / LOG4J).write_text(_QUIET_LOG4J)
            yield folder
    finally:
        if ours:
            del os.environ["PYSPARK_PYTHON"]


@contextmanager
def _stderr_into(path: Path | None) -> Iterator[None]:
    """Have the processes that start meanwhile write their stderr to a file.

    What Java writes there before it reads its settings cannot be silenced otherwise.
    """
    if path is None:
        yield
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


@contextmanager
def logs_silenced() -> Iterator[None]:
    """What is ended in its midst breaks py4j's calls, which it logs as errors."""
    logger = logging.getLogger("py4j")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _end_java() -> None:
    """End the Java process behind PySpark: the next session may need one with other options."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        try:
            process.wait(ENDED_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def _end_actors(before: set[str]) -> None:
    """Wait until RayDP's actors are gone, and end those that stay."""
    deadline = time.monotonic() + ENDED_S_MAX
    ours: set[str] = set()
    while ray.is_initialized():
        ours = {name for name in set(ray.util.list_named_actors()) - before if _is_raydps(name)}
        if not ours or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    for name in ours:
        try:
            ray.kill(ray.get_actor(name))
        except ValueError:
            pass


def _is_raydps(name: str) -> bool:
    return name.startswith("raydp-executor-") or name.endswith(("_SPARK_MASTER", "RAY_APP_MASTER"))
