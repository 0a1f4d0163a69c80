"""`pxrs consume`: a member of a group in the shell."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import islice
from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, QueueName, TopologyName, duration

POLL_S = 1.0
COMMIT_EVERY_S = 1.0


def command(
    queue: QueueName,
    group: Annotated[
        str,
        typer.Option("--group", "-g", help="The group to be a member of; made if there is none."),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="End after so many messages.", show_default=False)
    ] = None,
    idle: Annotated[
        timedelta | None,
        typer.Option(
            "--idle",
            parser=duration,
            metavar="DURATION",
            help="End when nothing came for so long: 10s, 5m.",
            show_default=False,
        ),
    ] = None,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Consume QUEUE as a member of a group: print its messages and commit them; Ctrl-C ends.

    It shares the partitions with the group's other consumers. A message that was
    printed when this is killed may be printed again by the next one.
    """
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import say
    from pxrs_ray.cli.tail import json_line, text_line

    done: dict[int, int] = {}
    idle_s = idle.total_seconds() if idle is not None else None
    shown, last_s = 0, time.monotonic()
    with running(topology).group(group, queue).consumer() as consumer:
        committed_s = time.monotonic()
        try:
            while limit is None or shown < limit:
                batch = consumer.poll(POLL_S if idle_s is None else min(POLL_S, idle_s))
                if batch is not None:
                    left = None if limit is None else limit - shown
                    for message in islice(batch.batch, left):
                        say(json_line(message) if as_json else text_line(message), flush=True)
                        done[message.partition] = message.offset + 1
                        shown += 1
                    last_s = time.monotonic()
                elif idle_s is not None and time.monotonic() - last_s >= idle_s:
                    break
                if time.monotonic() - committed_s >= COMMIT_EVERY_S:
                    consumer.commit(done)
                    committed_s = time.monotonic()
        finally:
            consumer.commit(done)
