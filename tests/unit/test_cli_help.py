"""`pxrs --help` answers at once: what it imports is bounded, and what it says is whole."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pxrs_ray.cli.root import run, subcommands

# Each of them takes longer than all the rest of the help.
HEAVY = {"asyncio", "numpy", "pyarrow", "pydantic", "ray", "rich"}
# What the help may load besides typer: our own modules, a command each, and little else.
MORE_MAX = 70
PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout
import typer, typer.main
before = set(sys.modules)
from pxrs_ray.cli.root import run
with redirect_stdout(io.StringIO()) as told:
    assert run({arguments!r}) == 0
print(json.dumps([sorted(sys.modules), sorted(set(sys.modules) - before), told.getvalue()]))
"""


def loaded(*arguments: str) -> tuple[set[str], set[str], str]:
    """The packages that are loaded, the modules that came after typer, and what was printed."""
    program = PROGRAM.format(arguments=list(arguments))
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    everything, more, told = json.loads(ran.stdout)
    return {name.partition(".")[0] for name in everything}, set(more), told


def test_help_loads_nothing_heavy() -> None:
    packages, more, told = loaded("--help")
    assert told.startswith("Usage: pxrs")
    assert not HEAVY & packages
    assert len(more) <= MORE_MAX, more


@pytest.mark.parametrize("command", ["store", "scale"])
def test_help_on_a_command_loads_nothing_that_typer_does_not(command: str) -> None:
    packages, _, told = loaded(command, "--help")
    assert told.startswith(f"Usage: pxrs {command}")
    assert not (HEAVY - {"pydantic"}) & packages, "typer reads options' types with pydantic"


def test_help_lists_every_command_with_its_whole_first_paragraph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["--help"]) == 0
    told = capsys.readouterr().out
    lines = told.partition("Commands:")[2].splitlines()
    assert {line.split()[0] for line in lines if line[:3].strip()} == set(subcommands())
    words = " ".join(told.split())
    assert "Resume logs of QUEUE that lost data, skipping the lost offsets. This cannot" in words
    assert "..." not in words.partition("Commands:")[2]
    assert max(map(len, told.splitlines())) <= 100
    assert run(["store", "--help"]) == 0
    assert "the contract suite in groups of its own, and time commits" in " ".join(
        capsys.readouterr().out.split()
    )
