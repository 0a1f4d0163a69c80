"""The package works in each way that people install it: wheel, editable, plain checkout.

Nothing is fetched: the wheel is built with the tools that are here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHOWN = "import pxrs_ray.actors, pxrs_ray.spark, pxrs_ray.model; print(pxrs_ray.actors.__file__)"


def run(*command: str, cwd: Path) -> str:
    ran = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git would hand out of the present tree, in a folder of its own."""
    folder = tmp_path_factory.mktemp("checkout")
    names = ["pyproject.toml", "README.md", "LICENSE", "pxrs_ray", "actors", "spark", "docs"]
    packed = subprocess.run(
        ["tar", "--exclude=__pycache__", "-cf", "-", *names],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    subprocess.run(["tar", "-xf", "-"], cwd=folder, input=packed.stdout, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Iterator[zipfile.ZipFile]:
    flags = ("--no-deps", "--no-build-isolation", "--quiet")
    run("-m", "pip", "wheel", *flags, "--wheel-dir", "dist", ".", cwd=checkout)
    (found,) = (checkout / "dist").glob("*.whl")
    with zipfile.ZipFile(found) as opened:
        yield opened


def test_the_wheel_holds_every_module_once(wheel: zipfile.ZipFile, checkout: Path) -> None:
    expected = {
        path.relative_to(checkout).as_posix()
        for top in ("pxrs_ray", "pxrs_ray/actors", "pxrs_ray/spark")
        for path in (checkout / top).rglob("*.py")
    }
    names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert {name for name in names if name.endswith(".py")} == expected
    assert "pxrs_ray/actors/__init__.py" in names and "pxrs_ray/spark/__init__.py" in names
    assert "pxrs_ray/py.typed" in names
    # What `pxrs init` writes, of the documentation's folder too.
    templates = {name for name in names if name.startswith("pxrs_ray/cli/templates/")}
    shown = ("topology.toml", "handlers.py.txt", "ops/alerts.yml", "ops/grafana.json")
    assert templates >= {f"pxrs_ray/cli/templates/{each}" for each in (*shown, "ops/kuberay.yml")}
    assert all(name.startswith("pxrs_ray/") for name in names)
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert not any("__pycache__" in name for name in names)


def test_the_wheel_says_what_it_needs(wheel: zipfile.ZipFile) -> None:
    import pxrs_ray

    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    told = Parser().parsestr(wheel.read(name).decode())
    assert told["Name"] == "pxrs-ray"
    assert told["Version"] == pxrs_ray.__version__
    assert told["Requires-Python"] == ">=3.11"
    needed = told.get_all("Requires-Dist") or []
    base = {re.split(r"[ <>=!;\[]", line)[0] for line in needed if "extra ==" not in line}
    assert base == {"numpy", "pyarrow", "pydantic", "ray", "rich", "typer", "xxhash"}
    extras = {"all", "default", "etcd", "oracle", "postgres", "redis", "spark"}
    assert set(told.get_all("Provides-Extra") or []) == extras
    for package in ("ray[default]", "pyspark", "raydp", "etcd3", "oracledb", "psycopg[binary]"):
        assert any(line.startswith(package) and "extra ==" in line for line in needed)
    scripts = wheel.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "pxrs = pxrs_ray.cli:main" in scripts
    assert any(entry.endswith("/licenses/LICENSE") for entry in wheel.namelist())


def test_an_installed_wheel_imports(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    target = tmp_path / "site"
    wheel.extractall(target)  # all that installing a pure wheel does to modules
    program = f"import sys; sys.path.insert(0, {str(target)!r}); {SHOWN}"
    assert run("-c", program, cwd=tmp_path) == str(target / "pxrs_ray/actors/__init__.py")


def test_a_plain_checkout_imports_as_a_working_directory(checkout: Path) -> None:
    # -P keeps the folder out of sys.path by itself, as a Ray worker puts it there by name.
    program = f"import sys; sys.path.insert(0, {str(checkout)!r}); {SHOWN}"
    assert run("-P", "-c", program, cwd=checkout) == str(checkout / "pxrs_ray/actors/__init__.py")


def test_the_editable_install_imports_from_anywhere(tmp_path: Path) -> None:
    try:
        shown = run("-P", "-c", SHOWN, cwd=tmp_path)
    except AssertionError:
        pytest.fail("pxrs_ray is not installed here: run `make setup`")
    assert Path(shown).resolve() == ROOT / "actors/__init__.py"


def test_type_checkers_see_the_whole_package(checkout: Path) -> None:
    program = "from pxrs_ray import PxrsConfig, model\nfrom pxrs_ray.actors import names\n"
    (checkout / "user.py").write_text(program + "reveal_type(PxrsConfig().num_partitions)\n")
    told = run("-m", "mypy", "--strict", "--no-error-summary", "user.py", cwd=checkout)
    assert 'Revealed type is "builtins.int"' in told or 'Revealed type is "int"' in told
