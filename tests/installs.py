"""What an install with some extras brings, played without installing: other packages are hidden.

The packages are those that pyproject.toml names and those that they need in turn, as the packages
that are installed here say. A program runs with them, the standard library and ours, and nothing
else: what is not among them is not found, as where it is not installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent

_ONLY = """\
import json, sys, sysconfig
from importlib.machinery import PathFinder

INSTALLED = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}

class Only:
    names = frozenset(json.loads(sys.argv.pop(1)))

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name not in cls.names:  # Ray brings some in folders of its own
            path = [folder for folder in sys.path if folder not in INSTALLED]
        return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Only if finder is PathFinder else finder for finder in sys.meta_path]
"""


@cache
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def plain(name: str) -> str:
    """A package's name as all spellings of it come out."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def packages(*extras: str) -> frozenset[str]:
    """What `pip install "pxrs-ray[extras]"` installs."""
    optional = project()["optional-dependencies"]
    lines = [*project()["dependencies"], *(line for name in extras for line in optional[name])]
    waiting, seen = [Requirement(line) for line in lines], set()
    while waiting:
        wanted = waiting.pop()
        name = plain(wanted.name)
        key = (name, *sorted(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        if name == "pxrs-ray":
            waiting += [Requirement(line) for one in wanted.extras for line in optional[one]]
            continue
        try:
            needs = [Requirement(line) for line in requires(wanted.name) or ()]
        except PackageNotFoundError:
            raise AssertionError(f"{wanted.name} is not here: run `make setup`") from None
        for need in needs:
            tried = [{"extra": one} for one in (*wanted.extras, "")]
            if need.marker is None or any(need.marker.evaluate(one) for one in tried):
                waiting.append(need)
    return frozenset(key[0] for key in seen) - {"pxrs-ray"}


@cache
def modules(*extras: str) -> frozenset[str]:
    """The top modules of `packages`, and the standard library's."""
    brought = packages(*extras)
    found = {
        module
        for module, names in packages_distributions().items()
        if brought & {plain(name) for name in names}
    }
    return frozenset(found | set(sys.stdlib_module_names) | {"pxrs_ray"})


def run_with(program: str, *extras: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that has the base install and these extras."""
    return subprocess.run(
        [sys.executable, "-c", f"{_ONLY}\n{program}", json.dumps(sorted(modules(*extras)))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
