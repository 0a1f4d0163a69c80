"""`queues.json`: the queues whose logs a buffer holds, and the logs that were set aside."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import cast

from pxrs_ray.codec import json_codec
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import LogAway, UsageError
from pxrs_ray.files import Files

logger = logging.getLogger(__name__)

NAME = "queues.json"
QUEUES = json_codec("buffer: queues.json", list[QueueSpec], indent=1)
_LOG = "p" + "[0-9]" * 5
_ASIDE = ".aside"


def read_queues(files: Files, folder: Path) -> list[QueueSpec]:
    """What was written down. What cannot be read is put aside: the coordinator tells anew."""
    path = folder / NAME
    try:
        return cast(list[QueueSpec], QUEUES.decode(files.read_file(path)))
    except FileNotFoundError:
        return []
    except ValueError as error:
        aside = path.with_name(path.name + ".damaged")
        logger.error("%s is not a list of queues (%s): kept as %s", path, error, aside.name)
        files.rename(path, aside)
        return []


def write_queues(files: Files, folder: Path, specs: Collection[QueueSpec]) -> None:
    """Have it on disk which queues there are, before anything is done about it. Raises LogAway."""
    try:
        files.replace(folder / NAME, QUEUES.encode(list(specs)), sync=True)
    except OSError as error:
        raise LogAway(f"{folder}: queues cannot be written down ({error})") from error


def put_aside(files: Files, log: Path) -> None:
    """Let the folder of a log that is not ours lie beside it, as it is. Raises OSError."""
    aside = log.with_name(f"{log.name}.{uuid.uuid4().hex}{_ASIDE}")
    files.rename(log, aside)
    files.sync_folder(log.parent)
    logger.error("%s is the log of another queue: kept as %s", log, aside.name)


def drop_log(files: Files, log: Path) -> None:
    """Remove the folder of a log: all of it at once, whatever comes between. Raises OSError."""
    aside = log.with_name(f"{log.name}.{uuid.uuid4().hex}{_ASIDE}")
    files.rename(log, aside)
    files.sync_folder(log.parent)
    files.remove_folder(aside)


def logs_in(queue: Path, index: int, buffers: int) -> list[Path]:
    """The folders of one buffer's logs of a queue, with what was put aside."""
    found = [*sorted(queue.glob(_LOG)), *sorted(queue.glob(f"{_LOG}.*{_ASIDE}"))]
    return [folder for folder in found if int(folder.name[1:6]) % buffers == index]


def check_change(known: QueueSpec, spec: QueueSpec) -> None:
    """Raise UsageError when a queue that is here cannot become `spec`."""
    if known.partitions != spec.partitions:
        raise UsageError(
            f"queue {spec.queue!r} has {known.partitions} partitions, not {spec.partitions}: "
            "their number never changes"
        )
    if (known.limits.durability is Durability.MEMORY) != (
        spec.limits.durability is Durability.MEMORY
    ):
        raise UsageError(
            f"queue {spec.queue!r} has durability {known.limits.durability}: make a new queue "
            f"for {spec.limits.durability}"
        )
