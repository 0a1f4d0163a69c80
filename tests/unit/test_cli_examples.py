"""Each command's help has examples, and each of them is a line that the command takes."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
import typer

from pxrs_ray.cli._examples import EXAMPLES
from pxrs_ray.cli.root import root, run
from tests.cli.commands import EVERY

LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


def test_every_command_has_one_and_none_is_of_no_command() -> None:
    assert {command.name for command in EVERY} == set(EXAMPLES)


@pytest.mark.parametrize(("name", "line"), LINES)
def test_it_is_a_line_of_its_command(name: str, line: str) -> None:
    words = shlex.split(line.partition(" < ")[0])
    assert words[: len(name.split())] == name.split()
    command: Any = typer.main.get_command(root)
    while hasattr(command, "list_commands"):
        command = command.get_command(click.Context(command), words.pop(0))
    command.make_context(name, words)


@pytest.mark.parametrize("words", [["seek"], ["queue", "purge"], ["dead-letters", "retry"]])
def test_help_shows_them_as_they_are(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()
    for line in EXAMPLES[" ".join(words)]:
        assert f"    pxrs {line}" in shown
