"""`tell_started`: a buffer that starts calls its coordinator, which then pings it without delay."""

from __future__ import annotations

import logging
from functools import partial

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster.coordinator_request import Request, WhileAway
from pxrs_ray.actors.cluster.named_actors import find_actor
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NoteBufferStarted(Request[None]):
    """A buffer has started: ping it now."""

    index: int
    while_away = WhileAway.GOES_ON


def tell_started(topology: str, index: int) -> None:
    """Call the coordinator from a thread, once; if it misses the call, it pings within a second
    anyway."""
    if ray.is_initialized():
        tell = partial(_tell, topology, index)
        Supervisor("its start").thread("pxrs-started", tell).start()


def _tell(topology: str, index: int) -> None:
    try:
        found = find_actor(names.coordinator(topology))
        if found is not None:
            found.answer.remote(NoteBufferStarted(index))
    except Exception as error:  # noqa: BLE001 - nobody waits for it
        logger.info("the coordinator of %s was not told: %s", topology, told(error))
