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
BEGIN_WAIT_S = 60.0


class LeaseKeeper:
    """Grants every life of these buffers a lease that does not end. Close it.

    A thread for each: one that is slow to come back keeps none of the others waiting.
    """

    def __init__(self, handles: Sequence[Any]) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._keep, args=(handle, _let_serve(handle, "", BEGIN_WAIT_S)), daemon=True
            )
            for handle in handles
        ]
        for thread in self._threads:
            thread.start()

    def _keep(self, handle: Any, granted: str) -> None:
        while not self._over.wait(EVERY_S):
            with suppress(Exception):  # it is being killed: the next look grants it
                granted = _let_serve(handle, granted, ASK_WAIT_S)

    def close(self) -> None:
        """Grant no more."""
        self._over.set()
        for thread in self._threads:
            thread.join(3 * ASK_WAIT_S)


def _let_serve(handle: Any, granted: str, wait_s: float) -> str:
    """Grant the life that answers what none but it can use; answer which one has it."""
    info = ray.get(handle.ping.remote(), timeout=wait_s)
    if info.incarnation == granted:
        return granted
    after = ray.get(handle.ping.remote(for_ever(info)), timeout=wait_s)
    # Killed in between, Ray asks the next life, which takes no other's grant.
    return granted if after.incarnation != info.incarnation else str(after.incarnation)
