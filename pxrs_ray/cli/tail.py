"""`pxrs tail`: shows a queue's messages as they arrive."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import (
    AsJson,
    PartitionsOption,
    QueueName,
    TopologyName,
    duration,
    moment_ms,
)
from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import UsageError
from pxrs_ray.status.harmless import one_line

if TYPE_CHECKING:
    from pxrs_ray.actors.client.queue_reader import QueueReader
    from pxrs_ray.model import Message

NEWEST = 10
START = "start"
_Place = str | datetime


def pattern(text: str) -> re.Pattern[str]:
    """Read a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"{text[:50]!r} is no regular expression: {error}") from None


Newest = Annotated[
    int | None,
    typer.Option(
        "--newest",
        "-n",
        min=0,
        help="Start with this many of the newest messages of each partition; default: 10, or "
        "all with --key or --grep.",
        show_default=False,
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="Start here instead: start, an offset, or a time like 2026-05-01T12:00.",
        show_default=False,
    ),
]
Since = Annotated[
    timedelta | None,
    typer.Option(
        "--since",
        parser=duration,
        metavar="DURATION",
        help="Start so long ago instead: 90s, 30m, 2h, 1d.",
        show_default=False,
    ),
]
OnlyKey = Annotated[
    str | None,
    typer.Option("--key", "-k", help="Only messages of this key.", show_default=False),
]
Grep = Annotated[
    re.Pattern[str] | None,
    typer.Option(
        "--grep",
        parser=pattern,
        metavar="REGEX",
        help="Only messages whose payload, as shown, has this in it.",
        show_default=False,
    ),
]


def command(
    queue: QueueName,
    newest: Newest = None,
    start: FromOption = None,
    since: Since = None,
    key: OnlyKey = None,
    grep: Grep = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="End after so many messages.", show_default=False)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep showing new messages.")
    ] = False,
    partition: PartitionsOption = None,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show messages of QUEUE without consuming them: no group and no checkpoint is affected."""
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import say

    if sum(each is not None for each in (newest, start, since)) > 1:
        raise UsageError("start at one place: --newest, --from or --since")
    place = None if start is None else _place(start)
    found = running(topology)
    from pxrs_ray.actors.client.queue_reader import QueueReader

    peek = QueueReader.of(found, queue)
    if partition:
        peek.only({p: peek.positions.get(p, 0) for p in partition})
    if newest is None and start is None and since is None:
        newest, place = (NEWEST, None) if key is None and grep is None else (None, START)
    if newest is not None:
        peek.newest(newest)
    else:
        _begin(peek, place, since)
    messages = matching(peek.messages(follow=follow), key, grep)
    for message in islice(messages, limit):
        say(json_line(message) if as_json else text_line(message), flush=follow)


def _place(text: str) -> _Place:
    """Read where to start: 'start', an offset, or a time."""
    if text == START or text.isdecimal():
        return text
    try:
        return datetime.fromtimestamp(moment_ms(text) / 1_000).astimezone()
    except typer.BadParameter:
        raise typer.BadParameter(
            f"start at start, an offset, or a time like 2026-05-01T12:00, not {text[:50]!r}"
        ) from None


def _begin(peek: QueueReader, place: _Place | None, since: timedelta | None) -> None:
    """Go to where reading starts; a time is where the first message not older than it is."""
    if place == START:
        peek.from_start()
    elif isinstance(place, str):
        _check_place(peek, int(place))
        peek.only(dict.fromkeys(peek.positions, int(place)))
    else:
        ago_ms = round(since.total_seconds() * 1_000) if since is not None else 0
        at_ms = wall_ms() - ago_ms if place is None else round(place.timestamp() * 1_000)
        peek.from_time(at_ms)


def _check_place(peek: QueueReader, offset: int) -> None:
    """Raise UsageError where no partition goes as far: nothing would ever be shown of it."""
    found = {p: end for p, end in peek.ends().items() if p in peek.positions}
    if all(offset > end.end_offset for end in found.values()):
        told = ", ".join(f"P{p} at {end.end_offset}" for p, end in sorted(found.items())[:8])
        raise UsageError(f"{peek.queue} does not go as far as {offset}; it ends here: {told}")


def matching(
    messages: Iterator[Message], key: str | None, grep: re.Pattern[str] | None
) -> Iterator[Message]:
    """Those of a key, and with a text in their payload as people are shown it."""
    from pxrs_ray.cli._show import text_of

    wanted = key.encode(errors="surrogateescape") if key is not None else None
    for message in messages:
        if wanted is not None and message.key != wanted:
            continue
        if grep is None or grep.search(text_of(message.payload)):
            yield message


def text_line(message: Message) -> str:
    """One message in one line: place, time, key, payload."""
    from pxrs_ray.cli._show import text_of
    from pxrs_ray.status.units import clock_text

    key = "-" if message.key is None else text_of(message.key)
    return one_line(
        f"P{message.partition}@{message.offset} {clock_text(message.timestamp_ms)} {key}: "
        f"{text_of(message.payload)}"
    )


def json_line(message: Message) -> str:
    """One message as one JSON line."""
    from pxrs_ray.cli._show import plain

    return json.dumps(plain(message))
