"""The base install runs what it should, each extra brings what it promises, and what is missing is
told in one line that names its extra, at every door."""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path

import pytest

from pxrs_ray.errors import DependencyMissing
from pxrs_ray.extras import EXTRAS, extra
from tests.installs import ROOT, modules, packages, project, run_with

# Extra: how the names of the modules begin that cannot be imported without it.
MODULES = {
    "default": ("pxrs_ray.dashboard.server",),
    "etcd": ("pxrs_ray.store.etcd",),
    "oracle": ("pxrs_ray.store.sql.oracle",),
    "postgres": ("pxrs_ray.store.sql.postgres",),
    "redis": ("pxrs_ray.store.redis",),
    "spark": ("pxrs_ray.spark.", "pxrs_ray.demo."),
}
HEAVY = {"pyspark", "raydp", "pandas", "grpc", "etcd3", "oracledb", "psycopg", "redis", "aiohttp"}


def of_an_extra(module: str) -> bool:
    return module.startswith(tuple(start for starts in MODULES.values() for start in starts))


def every_module() -> list[str]:
    found = []
    for folder in ("pxrs_ray", "pxrs_ray/actors", "pxrs_ray/spark"):
        for path in (ROOT / folder).resolve().rglob("*.py"):  # the last two are links
            inside = path.relative_to((ROOT / folder).resolve())
            name = ".".join((*folder.split("/"), *inside.with_suffix("").parts))
            if inside.parts[0] not in ("actors", "spark") and inside.stem != "__main__":
                found.append(name.removesuffix(".__init__"))
    assert {"pxrs_ray.actors", "pxrs_ray.spark.write", "pxrs_ray.data.frame"} <= set(found)
    return sorted(found)


def failing(wanted: list[str], *extras: str) -> dict[str, str]:
    """Which of the modules cannot be imported with these extras, and why."""
    program = (
        "import importlib, json\nfailed = {}\n"
        f"for name in {wanted!r}:\n"
        "    try:\n        importlib.import_module(name)\n"
        "    except ImportError as error:\n        failed[name] = str(error)\n"
        "print(json.dumps(failed))"
    )
    ran = run_with(program, *extras)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, str] = json.loads(ran.stdout)
    return found


def test_the_base_install_imports_everything_but_what_is_an_extra() -> None:
    failed = failing(every_module())
    assert {name: why for name, why in failed.items() if not of_an_extra(name)} == {}
    for starts in MODULES.values():  # none stands there as an excuse
        assert any(name.startswith(starts) for name in failed)


@pytest.mark.parametrize("name", EXTRAS)
def test_an_extra_brings_what_its_modules_need(name: str) -> None:
    assert failing([one for one in every_module() if one.startswith(MODULES[name])], name) == {}


def test_the_base_install_is_light() -> None:
    assert not modules() & HEAVY
    assert modules("all") >= HEAVY
    assert packages("all") >= {"ray", "pyspark", "raydp", "etcd3", "oracledb"}


def test_every_extra_is_told_and_all_has_them_all() -> None:
    optional = project()["optional-dependencies"]
    assert set(optional) == {*EXTRAS, "all"}
    assert packages("all") == packages(*EXTRAS)
    assert set(MODULES) == set(EXTRAS)


def test_what_all_installs_is_locked() -> None:
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").split()
    locked = {line.partition("==")[0].replace(".", "-") for line in lines}
    assert packages("all") <= locked


IN_THE_LIBRARY = {
    "etcd": "from pxrs_ray.store import open_store; open_store('etcd://h:2379/')",
    "oracle": "from pxrs_ray.store import open_store; open_store('oracle://u@h:1521/s')",
    "postgres": "from pxrs_ray.store import open_store; open_store('postgresql://u@h/db')",
    "redis": "from pxrs_ray.store import open_store; open_store('rediss://h:6379/0')",
    "redis, a source": (
        "from pxrs_ray.sources.open_source import open_source\n"
        "open_source('redis://h:6379/0?stream=orders')"
    ),
    "spark": "from pxrs_ray.spark import write_dataframe",
    "spark, on Ray": "from pxrs_ray.spark import spark_on_ray",
}
ON_THE_COMMAND_LINE = {
    "etcd": "store check etcd://h:2379/",
    "oracle": "store check oracle://u@h:1521/s",
    "postgres": "store show postgresql://u:secret@h/db",
    "redis": "store copy redis://h:6379/0 sqlite:///copied.db",
    "spark": "demo",
    "default": "dashboard",
}


def told_in_one_line(said: str, name: str) -> None:
    assert f'pip install "pxrs-ray[{name}]"' in said
    assert len(said.splitlines()) == 1 and "which is not installed" in said and "secret" not in said


@pytest.mark.parametrize("door", IN_THE_LIBRARY)
def test_a_call_says_which_extra_is_missing(door: str) -> None:
    program = (
        f"from pxrs_ray.errors import DependencyMissing\nprogram = {IN_THE_LIBRARY[door]!r}\n"
        "try:\n    exec(program)\n"
        "except DependencyMissing as error:\n    print(error)"
    )
    name = door.partition(",")[0]
    bare = run_with(program)
    assert (bare.returncode, bare.stderr) == (0, "")
    told_in_one_line(bare.stdout, name)
    whole = run_with(program, name)
    assert (whole.returncode, whole.stdout) == (0, ""), whole.stderr


@pytest.mark.parametrize("name", ON_THE_COMMAND_LINE)
def test_a_command_says_which_extra_is_missing(name: str) -> None:
    arguments = ON_THE_COMMAND_LINE[name].split()
    ran = run_with(f"from pxrs_ray.cli.root import run\nsys.exit(run({arguments!r}))")
    assert (ran.returncode, ran.stdout) == (1, "")
    told_in_one_line(ran.stderr, name)


def test_help_and_the_fronts_need_no_extra() -> None:
    program = "import pxrs_ray, pxrs_ray.actors, pxrs_ray.spark\nfrom pxrs_ray import deploy\n"
    ran = run_with(program + "from pxrs_ray.cli.root import run\nsys.exit(run(['--help']))")
    assert ran.returncode == 0 and "dashboard" in ran.stdout, ran.stderr


def test_the_doctor_asks_for_java_only_where_spark_is() -> None:
    program = (
        "import os; os.environ.update(PATH='/nowhere', JAVA_HOME='/nowhere')\n"
        "from pxrs_ray.cli.doctor import _machine\n"
        "print([(found.severity.value, found.where) for found in _machine()])"
    )
    assert run_with(program).stdout.strip() == "[('ok', 'Spark')]"
    assert run_with(program, "spark").stdout.strip() == "[('warning', 'Java')]"


def test_part_of_an_extra_is_told_as_well() -> None:
    """etcd3 is missing, and what it stands on is there: it came with something else."""
    program = (
        "sys.modules['etcd3'] = None\n"
        "from pxrs_ray.cli.root import run\nsys.exit(run(['store', 'check', 'etcd://h:2379/']))"
    )
    ran = run_with(program, "etcd")
    told_in_one_line(ran.stderr, "etcd")
    assert "package etcd3" in ran.stderr


def test_a_package_that_does_not_load_is_told_in_one_line() -> None:
    told = r'^the door cannot load psycopg: no pq wrapper: pip install "pxrs-ray\[postgres\]"$'
    with pytest.raises(DependencyMissing, match=told), extra("postgres", "the door"):
        raise ImportError("no pq wrapper\navailable", name="psycopg")


def test_a_defect_of_ours_is_not_told_as_a_missing_package() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, extra("redis", "the door"):
        import_module("pxrs_ray.no_such_module")
    assert not isinstance(caught.value, DependencyMissing)
    with pytest.raises(DependencyMissing, match="as it is"), extra("redis", "the door"):
        raise DependencyMissing("as it is")


def imported_at_the_head(path: Path) -> set[str]:
    """The top modules that a file imports when it is loaded."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_an_example_says_which_extra_it_needs(path: Path) -> None:
    source = path.read_text()
    if "pxrs_ray.spark" in source or imported_at_the_head(path) & HEAVY:
        assert "pxrs-ray[" in source
