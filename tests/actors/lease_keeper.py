"""`LeaseKeeper`: stands for the coordinator of buffers that have none, also after they restart."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray

from tests.leases import for_ever

EVERY_S = 0.1
ASK_WAIT_S = 5.0


class LeaseKeeper:
    """Grants every life of these buffers a lease that does not end. Close it."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles
        self._over = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while not self._over.wait(EVERY_S):
            with suppress(Exception):  # a buffer that is being killed: the next look grants it
                self._look()

    def _look(self) -> None:
        for handle in self._handles:
            info = ray.get(handle.ping.remote(), timeout=ASK_WAIT_S)
            if not info.generation:
                ray.get(handle.ping.remote(for_ever(info)), timeout=ASK_WAIT_S)

    def close(self) -> None:
        """Grant no more."""
        self._over.set()
        self._thread.join(2 * ASK_WAIT_S)
