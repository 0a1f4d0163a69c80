"""The topology that most tests of commands look at, and how they wait."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 40.0
HANDLERS = """
import time

def handle(message):
    if message.payload == b"poison":
        raise ValueError("poison")
    time.sleep(0.001)
"""
TOPOLOGY = """
name = "desk"
buffers = 1
{options}
[queues.orders]
partitions = 4
[groups.billing]
queue = "orders"
handler = "desk_handlers:handle"
consumers = 2
attempts_max = 2
backoff_ms = 10
"""


def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition()` is true."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come to be"
        time.sleep(0.05)
