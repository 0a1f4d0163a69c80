"""Steady load for tests and benchmarks: a thread that sends numbered messages, evenly.

`places` has, by its number, where each acknowledged message is; `refused` why others are nowhere.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

from pxrs_ray.errors import PxrsError
from pxrs_ray.producer.receipt import MessagePlace

KEYS = 64


class Load:
    """Sends m0, m1, ... at an even pace while the `with` block runs; then all are acknowledged."""

    def __init__(
        self, topology: Any, per_second: int = 400, queue: str = "q", *, may_refuse: bool = False
    ) -> None:
        self.sent = 0
        self.places: dict[int, MessagePlace] = {}
        self.refused: dict[int, PxrsError] = {}
        self._producer = topology.producer(queue)
        self._pause_s = 1 / per_second
        self._may_refuse = may_refuse
        self._receipts: list[Any] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set():
            number = self.sent
            self._receipts.append(self._producer.send(f"k{number % KEYS}", f"m{number}"))
            self.sent += 1
            due_s += self._pause_s
            self._stop.wait(max(0.0, due_s - time.monotonic()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(60)
        self._producer.close(60)
        for number, receipt in enumerate(self._receipts):
            try:
                self.places[number] = receipt.result(10)
            except PxrsError as error:
                if not self._may_refuse:
                    raise
                self.refused[number] = error
