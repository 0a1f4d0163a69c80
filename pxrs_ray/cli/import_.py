"""`pxrs import`: a folder of message files into a queue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, QueueName, TopologyName


def command(
    folder: Annotated[Path, typer.Argument(help="The folder that holds queue/partition-0/...")],
    queue: QueueName,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Append the messages of FOLDER to QUEUE, and take over the offsets of the groups in it.

    Continues where an earlier import ended, and adds nothing twice.
    """
    from pxrs_ray.actors.client.folder_transfer import import_folder
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer

    done = import_folder(steady(topology), folder, queue)
    told = f"{done.messages} messages into {done.partitions} partitions of {done.queue}"
    answer(done, as_json, lambda: f"{told}; groups: {', '.join(done.groups) or 'none'}")
