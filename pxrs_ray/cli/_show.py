"""The output of commands: a table for people, JSON for programs; colours only on a terminal."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pxrs_ray.cli._harmless import harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_OF_FILES = 160
CLOCK_MS_MAX = 253_402_214_400_000  # the last day of year 9999, which any time zone can show


def plain(value: Any) -> Any:
    """The same value made of what JSON knows; bytes that are no text become base64."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, Sequence | set | frozenset):
        return [plain(each) for each in value]
    return str(value)


def text_of(value: bytes) -> str:
    """Bytes as people read them; what is no text becomes 'base64:...'."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def print_json(value: Any) -> None:
    """Write one JSON document to stdout."""
    print(json.dumps(plain(value), indent=2 if sys.stdout.isatty() else None))


def say(text: str, *, error: bool = False, flush: bool = False) -> None:
    """Write lines for people, with nothing in them that a terminal obeys."""
    print(harmless(text), file=sys.stderr if error else sys.stdout, flush=flush)


def console() -> Console:
    """Where tables go: colours on a terminal alone, wide lines into files and pipes."""
    from pxrs_ray.cli._console import HarmlessConsole

    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    return HarmlessConsole(highlight=False, markup=False, width=width, soft_wrap=False)


def table(head: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> Table:
    """Columns under their heads; None is shown as '-', numbers are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for index, name in enumerate(head):
        numbers = all(isinstance(row[index], int | float | None) for row in rows) and rows
        made.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(_cell(cell)) for cell in row))
    return made


def answer(value: Any, as_json: bool, show: Callable[[], Any]) -> None:
    """Print `value` as JSON, or what `show` makes of it for people."""
    if as_json:
        print_json(value)
        return
    shown = show()
    if shown is not None:
        console().print(shown)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def clock_text(at_ms: int) -> str:
    """A moment as local time of day, with the date; as it stands, where no calendar has it."""
    if not 0 <= at_ms <= CLOCK_MS_MAX:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span_text(milliseconds: float | None) -> str:
    """A length of time as people say it: 40 ms, 3.2 s, 5 min, 2.0 h."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def size_text(size_bytes: float) -> str:
    """A size as people say it: 40 B, 3.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1_000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.1f} TB"
