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
FUNCTION_LINES_MAX = 70

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
# The front door and the commands name, for type checkers only, what they load when it is needed.
MAY_NAME_FOR_TYPES = ("pxrs_ray/__init__.py", "pxrs_ray/cli/")

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
    late = not name.startswith(MAY_IMPORT_LATE)
    types = not name.startswith(MAY_NAME_FOR_TYPES)
    for line, module in imports(source, late=late, types=types):
        if any(module == bad or module.startswith(bad + ".") for bad in forbidden):
            yield f"line {line}: imports {module}"


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
        ("actors/buffer.py", "import pxrs_ray.spark.feed"),
        ("actors/buffer.py", "import actors"),
        ("spark/feed.py", "from spark.session import start"),
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
        ("actors/buffer.py", "import ray\nfrom pxrs_ray.actors import names"),
        ("spark/feed.py", "import ray, pyspark\nfrom pxrs_ray.actors import names"),
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
    ]
    assert "pxrs_ray.model" in modules
    every = loaded_after("".join(f"import {module}\n" for module in modules))
    assert not every & {*RAY, *SPARK, *SHELL, *FEED, "pandas"}


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


def test_the_pins_are_plain() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines and all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)
