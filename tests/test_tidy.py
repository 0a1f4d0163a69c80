"""The house rules that no linter knows: sizes, who may import whom, nothing of this machine.

Docstrings, line lengths and bare imports of `actors` and `spark` are ruff's (D1, E501, TID251).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

RAY = ("ray",)
SPARK = ("pyspark", "raydp")
SHELL = ("pxrs_ray.actors",)
FEED = ("pxrs_ray.spark",)
BARE = ("actors", "spark")
DRIVERS = ("etcd3", "oracledb", "psycopg", "psycopg_pool", "redis", "grpc")

# Folder: what its files may not import, at any depth.
FORBIDDEN = {
    "pxrs_ray": (*RAY, *SPARK, *SHELL, *FEED, *BARE),
    "actors": (*SPARK, *FEED, *BARE),
    "spark": BARE,
    "tests": BARE,
    "examples": BARE,
}
# The commands start what they drive, but only once they are called: `pxrs --help` loads no Ray.
MAY_IMPORT_LATE = ("pxrs_ray/cli/",)
# The demonstration is a program of its own, which `pxrs demo` loads: it stands on everything.
DEMONSTRATION = "pxrs_ray/demo/"
# The front door and the commands name, for type checkers only, what they load when it is needed.
MAY_NAME_FOR_TYPES = ("pxrs_ray/__init__.py", "pxrs_ray/cli/")

# The wall clock jumps: it may date things, and only where `pxrs_ray.clock` reads it for everybody.
WALL = {"time": ("time", "time_ns", "clock_gettime", "clock_gettime_ns", "localtime", "gmtime")}
WALL["time"] += ("ctime", "asctime", "strftime")
WALL |= dict.fromkeys(("datetime", "date", "Timestamp"), ("now", "utcnow", "today"))
PRODUCT = ("pxrs_ray", "actors", "spark")
HOME_OF_TIME = ("pxrs_ray/clock.py", "pxrs_ray/testing/wrong_clock.py")  # ... and who falsifies it

# Whoever writes files asks `pxrs_ray.files`: what is not asked there meets no fault in tests,
# and is not for its owner alone. The others, and why they may:
HOME_OF_FILES = "pxrs_ray/files.py"
MAY_WRITE = {
    "actors/consumer/call_record_file.py": "a few bytes that a process writes into its map",
    "actors/consumer/call_record.py": "the same: what a handler has in hand",
    "pxrs_ray/cli/init.py": "a user's project, by the user's umask",
    "pxrs_ray/cli/root.py": "/dev/null",
    "pxrs_ray/store/sql/sqlite.py": "an empty file with its mode; what is in it is SQLite's",
    "pxrs_ray/demo/balances.py": "the demonstration's results",
    "pxrs_ray/demo/run.py": "the demonstration's results",
    "spark/session.py": "settings of Spark's own logging, in a scratch folder",
}
WRITING = ("write_text", "write_bytes", "mkdir", "makedirs", "rename", "renames", "O_CREAT")
WRITING += ("rmtree", "O_WRONLY", "O_RDWR", "mkstemp", "NamedTemporaryFile")

MODE = re.compile(r"[rbt]*[wax+][rbt+]*")

MACHINE = re.compile(r"/(?:work|root|opt)/\w|/tmp/\w{1,2}/|pypi\.org|files\.pythonhosted")
TEXTS = {".py", ".toml", ".md", ".txt", ".sql", ".lua", ".sh", ".ipynb", ".html", ".js", ".css", ""}
NOT_OURS = {".git", ".venv", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache"}
NOT_OURS |= {".pytest_cache", ".hypothesis"}


def files(suffixes: set[str], *folders: str) -> list[Path]:
    """Our files, each where it really stands: the links into the core are not followed."""
    found = []
    for folder in folders or (".",):
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            ours = not NOT_OURS & set(parts) and not path.name.endswith(".egg-info")
            if ours and path.suffix in suffixes and path.is_file() and path.resolve() == path:
                found.append(path)
    return found


def python_files() -> list[Path]:
    return files({".py"}, *(folder for folder in FORBIDDEN if (ROOT / folder).exists()))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def too_long(source: str) -> Iterator[str]:
    """Say which module or function of `source` is too long."""
    lines = len(source.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"has {lines} lines, {MODULE_LINES_MAX} at most"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"line {node.lineno}: {node.name} has {length} lines"


def imports(source: str, *, late: bool, types: bool) -> Iterator[tuple[int, str]]:
    """Yield line and module of each import; not those in functions unless `late`, nor those
    under TYPE_CHECKING unless `types`."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not late:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not types:
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))


def wrong_imports(name: str, source: str) -> Iterator[str]:
    """Say which imports of the file `name` break the layering."""
    forbidden = FORBIDDEN[name.split("/")[0]]
    if name.startswith(DEMONSTRATION):
        return
    late = not name.startswith(MAY_IMPORT_LATE)
    types = not name.startswith(MAY_NAME_FOR_TYPES)
    for line, module in imports(source, late=late, types=types):
        if any(module == bad or module.startswith(bad + ".") for bad in forbidden):
            yield f"line {line}: imports {module}"


def wall_clocks(source: str) -> Iterator[str]:
    """Say where `source` reads the wall clock, under whatever name it was imported."""
    tree = ast.parse(source)
    meant = {name: name for name in WALL}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            for alias in node.names:
                if alias.name in WALL:
                    meant[alias.asname or alias.name] = alias.name
                if module == "time" and alias.name in WALL["time"]:
                    yield f"line {node.lineno}: imports time.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if node.attr in WALL.get(meant.get(owner, ""), ()):
                yield f"line {node.lineno}: reads {owner}.{node.attr}"


@pytest.mark.parametrize("path", files({".py"}, *PRODUCT), ids=name_of)
def test_only_one_module_reads_the_wall_clock(path: Path) -> None:
    if name_of(path) not in HOME_OF_TIME:
        assert list(wall_clocks(path.read_text())) == []


@pytest.mark.parametrize("path", files({".py"}, *PRODUCT), ids=name_of)
def test_only_one_module_makes_milliseconds_of_a_clock(path: Path) -> None:
    if name_of(path) not in HOME_OF_TIME:
        own = r"_ns\(.*\) // 1_000_000|^def _?(now|monotonic|wall)_ms\("
        assert not re.search(own, path.read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nt.time_ns()",
        "from time import time_ns",
        "def f():\n    import time\n    return time.localtime()",
        "from datetime import datetime\ndatetime.now(UTC)",
        "import datetime as dt\ndt.datetime.utcnow()",
        "from datetime import date as day\nday.today()",
        "import pandas as pd\npd.Timestamp.now()",
        "read = time.time",
    ],
)
def test_the_clock_check_sees(source: str) -> None:
    assert list(wall_clocks(source))


def test_the_clock_check_lets_pass() -> None:
    source = "import time\ntime.monotonic_ns()\ntime.sleep(1)\nfrom time import perf_counter\n"
    source += "from datetime import datetime\ndatetime.fromtimestamp(at_s, UTC)\nself.now()"
    assert not list(wall_clocks(source))


def writes(source: str) -> Iterator[str]:
    """Say where `source` writes files by itself."""
    for node in ast.walk(ast.parse(source)):
        named = isinstance(node, ast.Attribute) and node.attr in WRITING
        if named and not ast.unparse(node.value).endswith("files"):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "open":
            told = [*node.args, *(keyword.value for keyword in node.keywords)]
            modes = [str(one.value) for one in told if isinstance(one, ast.Constant)]
            if any(MODE.fullmatch(mode) for mode in modes):
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", files({".py"}, *PRODUCT), ids=name_of)
def test_whoever_writes_files_asks_one_class(path: Path) -> None:
    if name_of(path) != HOME_OF_FILES and name_of(path) not in MAY_WRITE:
        assert list(writes(path.read_text())) == []


@pytest.mark.parametrize("name", MAY_WRITE)
def test_nobody_is_excused_for_nothing(name: str) -> None:
    assert list(writes((ROOT / name).read_text()))


@pytest.mark.parametrize(
    "source",
    [
        "path.write_text('x')",
        "open(path, 'w')",
        "path.open(mode='ab')",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "folder.mkdir(parents=True)",
        "os.rename(a, b)",
    ],
)
def test_the_writing_check_sees(source: str) -> None:
    assert list(writes(source))


def test_the_writing_check_lets_pass() -> None:
    source = "open(path)\npath.open('rb')\nself._files.rename(a, b)\nstore.open('sqlite:x')"
    assert not list(writes(source))


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_modules_and_functions_are_short(path: Path) -> None:
    assert list(too_long(path.read_text())) == []


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_nobody_imports_against_the_layers(path: Path) -> None:
    assert list(wrong_imports(name_of(path), path.read_text())) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("pxrs_ray/model.py", "import ray"),
        ("pxrs_ray/model.py", "def f():\n    from ray import util"),
        ("pxrs_ray/store/x.py", "from pxrs_ray import actors"),
        ("pxrs_ray/cli/log.py", "import ray"),
        ("pxrs_ray/__init__.py", "from pxrs_ray.actors.api import deploy"),
        ("actors/buffer/buffer_actor.py", "import pxrs_ray.spark.write"),
        ("actors/buffer/buffer_actor.py", "import actors"),
        ("spark/write.py", "from spark.session import start"),
        ("tests/unit/test_x.py", "import actors.buffer"),
    ],
)
def test_the_layering_check_sees(name: str, source: str) -> None:
    assert list(wrong_imports(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("pxrs_ray/model.py", "import numpy\nfrom pxrs_ray.errors import Fenced"),
        ("pxrs_ray/cli/status.py", "def command():\n    import ray"),
        (
            "pxrs_ray/__init__.py",
            "if TYPE_CHECKING:\n    from pxrs_ray.actors.api import deploy as deploy",
        ),
        ("actors/buffer/buffer_actor.py", "import ray\nfrom pxrs_ray.actors import names"),
        ("spark/write.py", "import ray, pyspark\nfrom pxrs_ray.actors import names"),
    ],
)
def test_the_layering_check_lets_pass(name: str, source: str) -> None:
    assert not list(wrong_imports(name, source))


def test_the_size_check_sees() -> None:
    function = "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX
    assert list(too_long(function)) == [f"line 1: f has {FUNCTION_LINES_MAX + 1} lines"]
    assert list(too_long("x = 1\n" * (MODULE_LINES_MAX + 1)))
    assert not list(too_long("x = 1\n" * MODULE_LINES_MAX))


def loaded_after(program: str) -> set[str]:
    """Run a program in a fresh interpreter, and answer every module that it has loaded."""
    told = f"{program}\nimport sys; print(' '.join(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ran.stdout.split())


def test_importing_the_core_loads_neither_ray_nor_spark_nor_drivers() -> None:
    quick = loaded_after("import pxrs_ray")
    assert not quick & {*RAY, *SPARK, *SHELL, *FEED, *DRIVERS, "pandas", "pyarrow", "pydantic"}
    modules = [
        name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in files({".py"}, "pxrs_ray")
        if not name_of(path).startswith(DEMONSTRATION)
    ]
    assert "pxrs_ray.model" in modules
    every = loaded_after("".join(f"import {module}\n" for module in modules))
    assert not every & {*RAY, *SPARK, *SHELL, *FEED, "pandas"}


@pytest.mark.parametrize("room", ["buffer.buffer_actor", "consumer.consumer_actor"])
def test_a_process_that_starts_loads_no_arrow_functions(room: str) -> None:
    """Arrow makes a wrapper for each when they are loaded, and whoever takes over waits for it."""
    assert "pyarrow.compute" not in loaded_after(f"import pxrs_ray.actors.{room}")


@pytest.mark.parametrize("name", ["actors", "spark"])
def test_the_links_lead_to_the_folders_at_the_root(name: str) -> None:
    link = ROOT / "pxrs_ray" / name
    assert link.is_symlink() and link.readlink() == Path("..", name)
    assert (link / "__init__.py").is_file()


def test_nothing_of_this_machine_is_in_the_tree() -> None:
    mine = Path(__file__).resolve()
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in files(TEXTS)
        if path != mine
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if MACHINE.search(line)
    ]
    assert found == []


def test_no_merge_was_left_unfinished() -> None:
    mark = re.compile(r"^(<{7}|>{7})( |$)", re.MULTILINE)
    found = [path for path in files(TEXTS) if mark.search(path.read_text(errors="replace"))]
    assert found == []


def test_the_pins_are_plain() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines and all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)


# Whatever begins a task or a thread of its own; only the supervisor does.
BEGINS = {"create_task", "ensure_future", "Thread", "to_thread", "run_in_executor", "TaskGroup"}
BEGINS |= {"ThreadPoolExecutor", "ProcessPoolExecutor", "Timer"}
# File: how often, and why that cannot end silently: each is awaited where it is begun, and what it
# raises is raised there.
BEGINS_HERE = {
    "actors/consumer/source_fetcher.py": (1, "a source's calls, each awaited by off_loop"),
    "actors/coordinator/startup.py": (1, "the start, awaited by every call"),
    "actors/cluster/gcs.py": (
        1,
        "a call off the loop, awaited with a deadline; its end is looked at",
    ),
    "actors/coordinator/store_thread.py": (1, "the store's calls, each awaited by off_loop"),
    "actors/buffer/log_reader.py": (1, "reads, each awaited by off_loop"),
    "actors/buffer/log_writer.py": (
        5,
        "jobs, syncs and openings on threads of their own, each awaited",
    ),
    "pxrs_ray/supervision/supervisor.py": (4, "the supervisor"),
}


def begun_alone(source: str) -> int:
    """How many tasks and threads `source` begins by itself."""
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = [getattr(func, "attr", getattr(func, "id", "")) for func in calls]
    return sum(name in BEGINS for name in names)


def files_of_the_product() -> list[Path]:
    every = files({".py"}, "pxrs_ray", "actors", "spark")
    return [path for path in every if not name_of(path).startswith("pxrs_ray/testing/")]


@pytest.mark.parametrize("path", files_of_the_product(), ids=name_of)
def test_every_loop_and_thread_runs_under_the_supervisor(path: Path) -> None:
    count, _ = BEGINS_HERE.get(name_of(path), (0, ""))
    assert begun_alone(path.read_text()) == count


def test_the_check_of_loops_and_threads_sees() -> None:
    assert begun_alone("import threading\nthreading.Thread(target=print).start()") == 1
    assert begun_alone("async def f():\n    asyncio.create_task(g())\n    await to_thread(h)") == 2
    assert begun_alone("supervisor.keep('loop', f)\nsupervisor.once('work', g())") == 0
