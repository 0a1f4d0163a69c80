"""The root of the command line: finds its subcommands late, and tells errors in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pxrs_ray
from pxrs_ray import cli
from pxrs_ray.cli.root import run

GREET = '''
"""Greets."""
import typer
from pxrs_ray.cli._show import say
from pxrs_ray.errors import NotFound

app = typer.Typer(help="Say things.")

@app.command()
def hello(name: str) -> None:
    """Say hello."""
    if name == "nobody":
        raise NotFound("there is nobody; try somebody")
    say(f"hello {name}")

@app.command()
def bye() -> None:
    """Say goodbye."""
'''
ONE = '''
"""Adds."""

def command(left: int, right: int = 1) -> None:
    """Add two numbers."""
    print(left + right)
'''


@pytest.fixture(autouse=True)
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greet.py").write_text(GREET)
    (tmp_path / "add_up.py").write_text(ONE)
    (tmp_path / "_helper.py").write_text("raise ImportError('never imported')")
    monkeypatch.setattr(cli, "__path__", [str(tmp_path)])
    for name in ("greet", "add_up"):
        monkeypatch.delitem(sys.modules, f"pxrs_ray.cli.{name}", raising=False)


def test_a_group_and_a_single_command_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["greet", "hello", "world"]) == 0
    assert run(["add-up", "3", "--right", "4"]) == 0
    assert capsys.readouterr().out == "hello world\n7\n"


def test_help_names_every_command_and_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    told = capsys.readouterr().out
    assert "greet" in told and "Say things." in told and "add-up" in told and "Add two" in told
    assert "helper" not in told


def test_an_error_of_ours_is_one_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["greet", "hello", "nobody"]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "pxrs: there is nobody; try somebody\n")


@pytest.mark.parametrize("arguments", [["nonsense"], ["greet", "hello"], ["add-up", "three"]])
def test_wrong_usage_has_its_own_status(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err.splitlines()) == 1, shown
    assert shown.err.startswith("pxrs: ") and "--help` has more)" in shown.err


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_quiet_leaves_out_what_went_well_wherever_it_is_said(
    place: int, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["greet", "hello", "nobody"]
    line.insert(place, "--quiet")
    assert run(line) == 1
    assert capsys.readouterr().err.startswith("pxrs: there is nobody")
    assert run([word.replace("nobody", "us") for word in line]) == 0
    assert capsys.readouterr().out == ""
    assert run(["greet", "hello", "us"]) == 0 and capsys.readouterr().out == "hello us\n"


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Say things." in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{pxrs_ray.__version__}\n"


def test_help_of_the_real_commands_loads_neither_ray_nor_spark() -> None:
    program = (
        "import sys; from pxrs_ray.cli.root import run, subcommands\n"
        "assert run(['--help']) == 0\n"
        "for name in subcommands(): assert run([name, '--help']) == 0, name\n"
        "assert not {'ray', 'pyspark', 'raydp'} & set(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
