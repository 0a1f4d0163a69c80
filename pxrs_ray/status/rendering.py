"""`Table` and `View`: what people are shown, described once; printed in a terminal, as plain text
and as HTML.

    Table(("queue", "messages"), [("payments", 7)])
    View([Line("PROBLEM: ...", Tone.BAD), Table(...)]).text()

Rules of this file. A command prints a view with its console, `__repr__` is its text, `_repr_html_`
its HTML: whatever is shown is the same in all three. None is shown as '-', numbers have separators
and stand at the right. Rich is imported when something is printed, not before: most processes that
load a status show none. What text and console are given is made harmless for a terminal, what HTML
is given is escaped.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from pxrs_ray.late_dataclass import dataclass

# Wider than any table: plain text is never folded, so that every word in it can be found.
TEXT_WIDTH = 100_000


class Tone(StrEnum):
    """How something is meant; its colour follows from it."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    DIM = "dim"
    BOLD = "bold"


_RICH = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.DIM: "dim",
    Tone.BOLD: "bold",
}
_CSS = {
    Tone.PLAIN: "",
    Tone.GOOD: "color: seagreen",
    Tone.WARN: "color: darkorange",
    Tone.BAD: "color: firebrick; font-weight: bold",
    Tone.DIM: "opacity: 0.7",
    Tone.BOLD: "font-weight: bold",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or a cell of a table, with its tone."""

    words: str
    tone: Tone = Tone.PLAIN

    def __str__(self) -> str:
        return self.words

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(self.words, style=_RICH[self.tone])

    def html(self) -> str:
        """It as a paragraph."""
        return f"<p{_style(self.tone)}>{html.escape(self.words)}</p>"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns under their heads. A cell that is a `Line` has its tone."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""

    def __rich__(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        title = Text(self.title) if self.title else None
        made = RichTable(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
        for name, numbers in zip(self.head, self._numbers(), strict=True):
            made.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
        for row in self.rows:
            made.add_row(*(_line(cell).__rich__() for cell in row))
        return made

    def html(self) -> str:
        """It as a table."""
        numbers = self._numbers()
        top = "".join(f"<th>{html.escape(name)}</th>" for name in self.head)
        body = "".join(f"<tr>{''.join(map(_html_cell, row, numbers))}</tr>" for row in self.rows)
        title = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"

    def _numbers(self) -> list[bool]:
        """Which columns hold nothing but numbers."""
        columns: Iterable[tuple[object, ...]] = zip(*self.rows, strict=True)
        found = [all(isinstance(cell, int | float | None) for cell in each) for each in columns]
        return found or [False] * len(self.head)


@dataclass(frozen=True, slots=True)
class View:
    """Lines and tables, one below the other."""

    parts: Sequence[Line | Table]

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*self.parts)

    def text(self) -> str:
        """It as plain text, without a colour and never folded."""
        from pxrs_ray.status.harmless_console import HarmlessConsole

        out = io.StringIO()
        console = HarmlessConsole(
            file=out, width=TEXT_WIDTH, markup=False, highlight=False, color_system=None
        )
        console.print(self)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip("\n")

    def html(self) -> str:
        """It as HTML, for a notebook."""
        return "".join(part.html() for part in self.parts)


def _line(cell: object) -> Line:
    if isinstance(cell, Line):
        return cell
    if cell is None:
        return Line("-")
    if isinstance(cell, float):
        return Line(f"{cell:,.1f}")
    return Line(f"{cell:,}" if isinstance(cell, int) else str(cell))


def _style(tone: Tone, *more: str) -> str:
    css = "; ".join(filter(None, (_CSS[tone], *more)))
    return f' style="{css}"' if css else ""


def _html_cell(cell: object, is_number: bool) -> str:
    line = _line(cell)
    style = _style(line.tone, "text-align: right" if is_number else "")
    return f"<td{style}>{html.escape(line.words)}</td>"
