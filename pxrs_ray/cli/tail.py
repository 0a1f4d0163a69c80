"""`pxrs tail`: shows a queue's messages as they arrive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import AsJson, Partitions, QueueName, TopologyName
from pxrs_ray.status.harmless import one_line

if TYPE_CHECKING:
    from pxrs_ray.model import Message


def command(
    queue: QueueName,
    newest: Annotated[
        int,
        typer.Option(
            "--newest",
            "-n",
            min=0,
            help="Start with this many of the newest messages of each partition.",
        ),
    ] = 10,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="Start at this offset instead.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep showing new messages.")
    ] = False,
    partition: Partitions = None,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show messages of QUEUE without consuming them: no group and no checkpoint is affected."""
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import say

    found = running(topology)
    from pxrs_ray.actors.client.queue_reader import QueueReader

    peek = QueueReader.of(found, queue)
    if partition:
        peek.only({p: peek.positions.get(p, 0) for p in partition})
    if start is not None:
        peek.only(dict.fromkeys(peek.positions, start))
    else:
        peek.newest(newest)
    for message in peek.messages(follow=follow):
        say(json_line(message) if as_json else text_line(message), flush=follow)


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
