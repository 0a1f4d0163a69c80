"""The output of commands: a table for people, JSON for programs; colours only on a terminal."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.status.harmless import harmless

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_OF_FILES = 160
BASE64 = "base64:"


@dataclass(slots=True)
class _Output:
    """With `quiet`, what is told to people and is no error is left out. JSON is not."""

    quiet: bool = False


OUTPUT = _Output()


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
    """Bytes as people read them; what is no text, or looks as if it was none, is 'base64:...'."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = BASE64
    return text if not text.startswith(BASE64) else BASE64 + base64.b64encode(value).decode()


def print_json(value: Any) -> None:
    """Write one JSON document to stdout."""
    print(json.dumps(plain(value), indent=2 if sys.stdout.isatty() else None))


def say(text: str, *, error: bool = False, flush: bool = False) -> None:
    """Write lines for people, with nothing in them that a terminal obeys."""
    if error or not OUTPUT.quiet:
        print(harmless(text), file=sys.stderr if error else sys.stdout, flush=flush)


def console() -> Console:
    """Where tables go: colours on a terminal alone, wide lines into files and pipes."""
    from pxrs_ray.status.harmless_console import HarmlessConsole

    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    return HarmlessConsole(
        highlight=False, markup=False, width=width, soft_wrap=False, quiet=OUTPUT.quiet
    )


def answer(value: Any, as_json: bool, show: Callable[[], Any]) -> None:
    """Print `value` as JSON, or what `show` makes of it for people."""
    if as_json:
        print_json(value)
        return
    shown = show()
    if shown is not None:
        console().print(shown)
