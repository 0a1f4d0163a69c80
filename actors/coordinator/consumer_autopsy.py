"""`autopsy`: reads how a consumer died and which messages its handlers had in hand, on any node."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.process_end import KERNEL_TELLS
from pxrs_ray.actors.consumer.call_record_file import read_record, record_path
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.processing.suspects import Death
from pxrs_ray.supervision.restart_rules import last_line

logger = logging.getLogger(__name__)

# The takeover waits for it: a node that does not answer is most likely gone, and then no message
# was the cause.
READ_WAIT_S = 1.0
# Ray sees the connections of a process end before the kernel says how it ended.
END_TOLD_WAIT_S = 0.5

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


async def first_told(
    run: asyncio.Future[str], ended: asyncio.Future[int], *, here: bool
) -> tuple[str, int]:
    """How a consumer ended, by whoever tells first: its endless call `run`, or the kernel.

    Whoever is first, the kernel says how it ended, where it can: for one that was `here`.
    """
    either: list[asyncio.Future[Any]] = [run, ended]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    is_awaited = here and KERNEL_TELLS and not ended.done()
    if is_awaited and run.result() == PROCESS_DIED:
        await asyncio.wait([ended], timeout=END_TOLD_WAIT_S)
    status = ended.result() if ended.done() else 0
    return (run.result() if run.done() else PROCESS_DIED), status
