"""`pxrs dead-letters`: messages that a group has given up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName
from pxrs_ray.cli._ray import running, steady
from pxrs_ray.cli._removal import Yes, confirm
from pxrs_ray.cli._show import answer, text_of
from pxrs_ray.errors import NotFound

if TYPE_CHECKING:
    from pxrs_ray.consumer.dead_letter import Letter
    from pxrs_ray.status.rendering import View

app = typer.Typer(
    help="List the dead letters of a group, and send them again or give them up.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

LISTED = 100


def place(text: str) -> tuple[int, int]:
    """Read a letter's place as `list` writes it: P3@17."""
    if not (found := re.fullmatch(r"[Pp]?(\d{1,5})@(\d{1,18})", text)):
        raise typer.BadParameter(f"a letter is named as the list does, P3@17, not {text[:50]!r}")
    return int(found[1]), int(found[2])


Places = Annotated[
    list[str] | None,
    typer.Argument(help="Letters, as the list names them: P3@17.", show_default=False),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", help="The letters of this key.", show_default=False)
]
Every = Annotated[bool, typer.Option("--all", help="Every letter of the group.")]


@app.command("list")
def list_(
    group: GroupName,
    key: KeyOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Show at most so many.")
    ] = LISTED,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """List the letters that nobody has retried or dropped, the oldest of each partition first."""
    found = running(topology).group(group).dead_letters.list(key=key, limit=limit)
    answer(list(found), as_json, lambda: found.view() if found else "no dead letter waits")


@app.command()
def show(
    group: GroupName,
    letter: Annotated[
        str, typer.Argument(help="A letter, as the list names it: P3@17.", show_default=False)
    ],
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show one letter: why it was given up, its headers and its payload."""
    wanted = place(letter)
    found = running(topology).group(group).dead_letters.at(wanted)
    if found is None:
        raise NotFound(f"{letter} of {group} is not a waiting dead letter")
    answer(found, as_json, lambda: _view(found))


@app.command()
def retry(
    group: GroupName,
    letters: Places = None,
    key: KeyOption = None,
    every: Every = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Send letters to the queue that they came from, behind what is there, in order.

    They keep key, payload, id, time and headers. Every group of that queue is
    given them. A letter is sent once, also when this command is repeated.
    """
    places = [place(each) for each in letters or ()]
    of = steady(topology).group(group).dead_letters
    count = of.retry(key=key, places=places, every=every)
    answer({"retried": count}, as_json, lambda: f"{count} letters were sent again")


@app.command()
def drop(
    group: GroupName,
    letters: Places = None,
    key: KeyOption = None,
    every: Every = False,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Give letters up: they are listed no more. Their log keeps them until its retention."""
    places = [place(each) for each in letters or ()]
    of = steady(topology).group(group).dead_letters
    if not yes:
        found = len(of.list(key=key, places=places))
        confirm(f"Drop {found} dead letters of {group}?", "no letter was dropped: say --yes")
    count = of.drop(key=key, places=places, every=every)
    answer({"dropped": count}, as_json, lambda: f"{count} letters were dropped")


def _view(letter: Letter) -> View:
    from pxrs_ray.status.rendering import Line, Table, Tone, View
    from pxrs_ray.status.units import clock_text

    message = letter.message
    place = f"P{letter.failed_partition}@{letter.failed_offset} of {letter.queue}"
    return View(
        [
            Line(f"P{letter.partition}@{letter.offset}, given up {clock_text(letter.at_ms)}"),
            Line(f"{place}, sent {clock_text(message.timestamp_ms)}, id {message.id or '-'}"),
            Line(f"{letter.attempts} attempts: {letter.error}", Tone.BAD),
            Table(("header", "value"), [(name, text_of(value)) for name, value in message.headers]),
            Line(f"key {'-' if message.key is None else text_of(message.key)}"),
            Line(text_of(message.payload)),
        ]
    )
