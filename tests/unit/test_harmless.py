"""What comes from messages and errors is shown, and obeyed by no terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.cli import _show
from pxrs_ray.cli.tail import json_line, text_line
from pxrs_ray.model import Message
from pxrs_ray.status.harmless import harmless, one_line
from pxrs_ray.status.harmless_console import HarmlessConsole
from pxrs_ray.status.rendering import Table, View

ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "\x1b]52;c;Y3VybCBldmls\x07\x1b[2J\r\x9b31m\u202eabc[/bold]"
CLI = Path(_show.__file__).parent


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.binary())
def test_a_message_is_one_harmless_line(key: str, timestamp_ms: int, payload: bytes) -> None:
    raw = key.encode(errors="surrogatepass")
    for made in (Message(0, 0, raw, payload, timestamp_ms), Message(0, 0, None, raw, 0)):
        line = text_line(made)
        assert "\n" not in line and not ESCAPES.search(line)
        assert not ESCAPES.search(json_line(made))
        line.encode()


@given(st.text())
def test_no_character_is_added_or_taken(text: str) -> None:
    assert len(one_line(text)) == len(harmless(text)) == len(text)
    assert one_line("P0@1 Zo\xeb: 漢字 🙂") == "P0@1 Zo\xeb: 漢字 🙂"


@pytest.mark.parametrize("terminal", [True, False])
def test_tables_and_lines_show_what_they_are_given(terminal: bool) -> None:
    out = io.StringIO()
    console = HarmlessConsole(file=out, width=200, markup=False, force_terminal=terminal)
    console.print(Table(["error", EVIL], [(EVIL, 1)], title=EVIL))
    console.print(EVIL)
    told = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()) if terminal else out.getvalue()
    assert not ESCAPES.search(told)
    assert told.count("\u241b]52;c;") == 4 and "[/bold]" in told
    assert not ESCAPES.search(View([Table([EVIL], [(EVIL,)], EVIL)]).text())


def test_lines_on_both_streams(capsys: pytest.CaptureFixture[str]) -> None:
    _show.say(EVIL)
    _show.say(EVIL, error=True)
    told = capsys.readouterr()
    assert not ESCAPES.search(told.out + told.err)


def test_commands_print_through_one_door() -> None:
    for path in CLI.glob("*.py"):
        if path.name != "_show.py":
            found = re.findall(r"(?<![.\w])print\(|\becho\(|Console\(", path.read_text())
            assert not found, f"{path.name}: use _show.say or _show.console"
