"""`autopsy`: reads how a consumer died and which messages its handlers had in hand, on any node."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.consumer.call_record_file import read_record, record_path
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.processing.suspects import Death

logger = logging.getLogger(__name__)

# The takeover waits for it: a node that does not answer is most likely gone, and then no message
# was the cause.
READ_WAIT_S = 1.0


UNSEEN = Death()
PROCESS_DIED = "its process died"


async def autopsy(node: str, actor: str, status: int = 0) -> Death:
    """What the consumer `actor` on `node` had in hand when it died.

    Nothing when its node does not say soon. A `node` that is not known is taken for this one.
    `status` is how the process ended, where that is known.
    """
    here = ray.get_runtime_context().get_node_id()
    if node in ("", here):
        return read_record(record_path(here, actor), status)
    try:
        # All of it there: to begin a task asks the GCS, and a takeover waits for this.
        return await gcs.ask("read", partial(_read_there, node, actor), READ_WAIT_S)
    except (RayError, DeadlineExceeded) as error:
        logger.warning("what %s had in hand is not known: %r", actor, error)
        return Death()


def _read_there(node: str, actor: str) -> Death:
    only_there = NodeAffinitySchedulingStrategy(node, soft=False)
    read = ray.remote(_read).options(num_cpus=0, max_retries=0, scheduling_strategy=only_there)
    coming = read.remote(node, actor)
    try:
        found: Death = ray.get(coming, timeout=READ_WAIT_S)
    except GetTimeoutError:
        ray.cancel(coming, force=True)
        raise
    return found


def _read(node: str, actor: str) -> Death:
    return read_record(record_path(node, actor))


async def end_of(handle: Any) -> str:
    """How a consumer ended, as Ray tells it."""
    try:
        return f"ended by itself: {await handle.run.remote()}"
    except RayActorError as error:
        logger.info("a consumer died: %s", error)
        return PROCESS_DIED
    except RayError as error:
        return f"failed: {last_line(error)}"


def last_line(error: BaseException) -> str:
    """The last line of what Ray says: what went wrong, below where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
