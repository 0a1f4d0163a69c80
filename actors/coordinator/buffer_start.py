"""`buffer_at_home`: starts a buffer at its home, and ends one of its name that runs elsewhere.
Blocks."""

from __future__ import annotations

import logging
import time
from typing import Any

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_making import make_buffer
from pxrs_ray.actors.cluster.actor_process import ALIVE, whereabouts
from pxrs_ray.actors.cluster.named_actors import kill_actor
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.topology.homes import Home, is_in_the_way

logger = logging.getLogger(__name__)

GONE_WAIT_S = 5.0
LOOK_PAUSE_S = 0.02


def buffer_at_home(
    topology: str, index: int, buffers: int, folder: str, lease_s: float, anew: bool, home: Home
) -> Any:
    """The actor of a buffer, pinned to its home; started `anew`, though one may run there. Raises
    DeadlineExceeded when another one of its name does not go: it is to be tried again."""
    _end_others(names.buffer(topology, index), home, anew=anew)
    return make_buffer(topology, index, buffers, folder, lease_s, home.disk, home.node)


def _end_others(name: str, home: Home, *, anew: bool) -> None:
    end_s = time.monotonic() + GONE_WAIT_S
    while True:
        found = whereabouts(name)
        if found is None:
            return
        if not is_in_the_way(home, found.node, lives=found.state == ALIVE, anew=anew):
            return
        if time.monotonic() > end_s:
            raise DeadlineExceeded(f"{name} ({found}) does not end, and is at home elsewhere")
        logger.warning("%s (%s) is ended: its home is %s", name, found, home)
        if not kill_actor(name):
            return
        time.sleep(LOOK_PAUSE_S)
