"""A witness that holds every other key back until it is told to go on, by a clock that is wrong."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from pxrs_ray import RetryAfter
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.testing.wrong_clock import HOUR_S, wrong_wall_clock
from tests.hosts.inside.witness import Witness

RELEASED = "released"
AGAIN_S = 8.0


def is_held(key: str) -> bool:
    """Whether messages of this key wait."""
    return int(key.rpartition("-")[2]) % 2 == 0


class Holding(Witness):
    """As `Witness`; in a process whose time of day is wrong, by hours, and by others each time."""

    def __init__(self, folder: str, work_s: float = 0.0) -> None:
        super().__init__(folder, work_s)
        self.folder = folder
        self._clock: AbstractContextManager[object] | None = None

    def on_assigned(self, partition: int, checkpoint: int) -> None:
        """The clock is wrong in the consumer's process, and not where the handler was made."""
        if self._clock is None:
            self._clock = wrong_wall_clock((os.getpid() % 5 - 2) * 24 * HOUR_S)
            self._clock.__enter__()

    def handle(self, message: Delivery) -> None:
        """Have it again later, while its key is held back."""
        if is_held((message.key or b"").decode()) and not Path(self.folder, RELEASED).exists():
            raise RetryAfter(AGAIN_S)
        super().handle(message)
