"""`pxrs export`: a queue into a folder of message files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, QueueName, TopologyName


def command(
    queue: QueueName,
    folder: Annotated[Path, typer.Argument(help="The folder to write queue/partition-0/... into.")],
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Write the messages of QUEUE into FOLDER, one file each, and the offsets of its groups."""
    from pxrs_ray.actors.client.folder_transfer import export_folder
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer

    done = export_folder(running(topology), queue, folder)
    told = f"{done.messages} messages of {done.partitions} partitions into {folder}"
    answer(done, as_json, lambda: f"{told}; groups: {', '.join(done.groups) or 'none'}")
