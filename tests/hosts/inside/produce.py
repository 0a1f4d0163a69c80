"""A producer on a host: `python -m tests.hosts.inside.produce TOPOLOGY NOTES PREFIX [options]`.

It sends numbered messages under keys of its own at an even pace until its standard input ends (or
`--count` are sent), notes each before it sends it, and then what became of it. Before it ends it
waits for every answer.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from pxrs_ray.errors import PxrsError
from tests.hosts.inside.connecting import connect
from tests.hosts.notes import Acknowledged, Fact, Notes, Refused, Sent

LOOK_S = 0.01
ANSWERS_S_MAX = 60


def main() -> int:
    """Send until told to end; answer 0 when it is known what became of everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("topology")
    parser.add_argument("notes")
    parser.add_argument("prefix")
    parser.add_argument("--per-second", type=float, default=100)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--keys", type=int, default=48)
    given = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints of nodes that die, also when nobody listens any more
    connect()
    from pxrs_ray.actors.client.topology import Topology

    notes = Notes(Path(given.notes), f"producer-{given.prefix}")
    producer = Topology(given.topology).producer("q")
    print("up", file=out, flush=True)
    waiting: deque[tuple[str, int, Any]] = deque()
    number, due_s = 0, time.monotonic()
    while not (given.count and number >= given.count):
        pause_s = max(0.0, min(LOOK_S, due_s - time.monotonic()))
        if _ended(pause_s, given.count):
            break
        while time.monotonic() >= due_s and not (given.count and number >= given.count):
            key, sequence = f"{given.prefix}-{number % given.keys}", number // given.keys
            notes.write(Sent(time.monotonic(), key, sequence))
            try:
                waiting.append((key, sequence, producer.send(key, str(sequence))))
            except PxrsError as error:
                notes.write(Refused(time.monotonic(), key, sequence, repr(error)[:200]))
            number += 1
            due_s += 1 / given.per_second
        waiting = _settle(notes, waiting)
    end_s = time.monotonic() + ANSWERS_S_MAX
    while waiting and time.monotonic() < end_s:
        waiting = _settle(notes, waiting)
        time.sleep(LOOK_S)
    return 1 if waiting else 0


def _ended(pause_s: float, count: int) -> bool:
    if count:
        time.sleep(pause_s)
        return False
    return bool(select.select([sys.stdin], [], [], pause_s)[0])


def _settle(notes: Notes, waiting: deque[tuple[str, int, Any]]) -> deque[tuple[str, int, Any]]:
    """Note what is known by now; answer what is not."""
    facts: list[Fact] = []
    left: deque[tuple[str, int, Any]] = deque()
    for key, sequence, receipt in waiting:
        if not receipt.done():
            left.append((key, sequence, receipt))
            continue
        try:
            place = receipt.result(0)
            assert place.offset is not None
            facts.append(
                Acknowledged(time.monotonic(), key, sequence, place.partition, place.offset)
            )
        except PxrsError as error:
            facts.append(Refused(time.monotonic(), key, sequence, repr(error)[:200]))
    if facts:
        notes.write(*facts)
    return left


if __name__ == "__main__":
    sys.exit(main())
