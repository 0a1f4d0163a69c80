"""A handler that notes when it began and ended each message, on which host, under which epoch."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pxrs_ray.consumer.delivery import Delivery
from tests.hosts.notes import Handled, Notes


class Witness:
    """Works for `work_s` at each message; its key and payload are what `produce` sends."""

    def __init__(self, folder: str, work_s: float = 0.0) -> None:
        self.notes, self.work_s = Notes(Path(folder), "handler"), work_s

    def handle(self, message: Delivery) -> None:
        """Note it only when it is done: what was cut off has not been handled."""
        from_s = time.monotonic()
        if self.work_s:
            time.sleep(self.work_s)
        c = message.context
        key, sequence = (message.key or b"").decode(), int(message.payload)
        self.notes.write(
            Handled(
                from_s,
                time.monotonic(),
                os.uname().nodename,
                _boot(),
                os.getpid(),
                c.member,
                c.incarnation,
                c.partition,
                c.offset,
                c.epoch,
                key,
                sequence,
            )
        )


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
