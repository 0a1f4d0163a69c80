"""Every command with every kind of wrong argument: one line, how it is right, and nobody is asked.

The commands, their arguments and what each of them takes are read from the program itself: a new
option is in these tests by itself. What commands say of single values is in test_wrong_input.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from pxrs_ray.cli.root import root, run
from tests.cli.commands import EVERY, Command

# Of the processor: other programs share the machine.
SECONDS_MAX = 1.0
USAGE = 2
# What no number, choice, partition, duration, place or time is.
RUBBISH = "no-such-value"
# Any text may be one of these: only a topology that runs, a file or a store can tell.
ANY_TEXT = frozenset(
    {
        *("topology", "group", "queue", "consumer", "what", "part", "name", "node", "host", "to"),
        *("file", "folder", "source", "target", "url", "working_dir", "token", "drain"),
        *("key", "grep", "separator", "key_column", "payload_column", "scope", "scope_column"),
        *("producer_id", "prefix"),
    }
)
LOOK_THEMSELVES = ("produce: --header", "produce: --format")
# These take any number of some arguments.
MANY = frozenset({"dead-letters retry", "dead-letters drop", "produce"})


def parameters(command: Command) -> list[Any]:
    found: Any = typer.main.get_command(root)
    context = click.Context(found)
    for word in command.words:
        found = found.get_command(context, word)
    return list(found.params)


def wrong_lines() -> Iterator[tuple[str, list[str]]]:
    """What is wrong, and the command line with it."""
    for command in EVERY:
        line = command.line()
        yield f"{command.name}: an option that there is not", [*line, "--nonsense"]
        if command.name not in MANY:
            yield f"{command.name}: too many arguments", [*line, *["more"] * 9]
        if command.required:
            yield f"{command.name}: nothing of what it needs", [*command.words]
        for each in parameters(command):
            is_option = each.opts[0].startswith("-")
            takes_text = not getattr(each, "is_flag", False) and not getattr(each, "count", False)
            if is_option and takes_text:
                yield f"{command.name}: {each.opts[0]} without its value", [*line, each.opts[0]]
            if is_option and takes_text and each.name not in ANY_TEXT:
                wrong = [*line, each.opts[0], RUBBISH]
                yield f"{command.name}: {each.opts[0]} {RUBBISH}", wrong
            if not is_option and each.required and each.name not in ANY_TEXT:
                wrong = command.line(**{each.name: RUBBISH})
                yield f"{command.name}: {each.name} {RUBBISH}", wrong


LINES = dict(wrong_lines())


@pytest.mark.parametrize("name", LINES)
def test_wrong_usage(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # nobody may be asked
    run(["--help"])  # what every command loads is no part of what this one takes
    capsys.readouterr()
    began_s = time.process_time()
    status = run(LINES[name])
    took_s = time.process_time() - began_s
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err.splitlines()) == 1, shown
    if status == USAGE:
        assert "--help` has more)" in shown.err, shown.err
    else:  # a command that looks at a value itself, and says what it takes
        assert status == 1 and name.startswith(LOOK_THEMSELVES), shown.err
    assert shown.err.startswith("pxrs: ") and "Ray" not in shown.err, shown.err
    assert took_s < SECONDS_MAX, took_s
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_every_command_is_there_with_several_mistakes() -> None:
    assert len(LINES) > 150
    assert {name.partition(":")[0] for name in LINES} == {command.name for command in EVERY}
