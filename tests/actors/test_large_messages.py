"""Messages of up to 64 MB arrive whole, beside small ones; what is larger is refused in words."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pxrs_ray import QueueConfig
from pxrs_ray.errors import MessageTooLarge
from tests.actors.conftest import Stage
from tests.actors.recording import eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

LARGE_BYTES = 64 << 20
BOUND_BYTES = LARGE_BYTES + 1_024
WAIT_S = 120.0


def digest(payload: bytes) -> str:
    return f"{len(payload)} {blake2b(payload, digest_size=16).hexdigest()}"


class Digesting:
    """A handler that notes what every message weighs, and what is in it."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def handle(self, message: Any) -> None:
        with self._notes.open("a") as notes:
            notes.write(f"{message.key.decode()} {digest(message.payload)}\n")


def test_a_message_of_64_mb_arrives_whole_beside_small_ones(stage: Stage, tmp_path: Path) -> None:
    queues = {"q": QueueConfig(partitions=2, message_bytes_max=BOUND_BYTES)}
    topology = stage.deploy(queues=queues)
    notes, rng = tmp_path / "digests", Random(1)
    group = topology.group("g", queue="q").start(Digesting(notes))
    sent = []
    with topology.producer("q") as producer:
        receipts = []
        for number in range(12):
            payload = rng.randbytes(LARGE_BYTES if number in (3, 7) else 100)
            sent.append(f"k{number % 3} {digest(payload)}")
            receipts.append(producer.send(f"k{number % 3}", payload))
        assert all(receipt.result(WAIT_S) is not None for receipt in receipts)
        with pytest.raises(MessageTooLarge, match=f"message_bytes_max={BOUND_BYTES}"):
            producer.send("k0", bytes(BOUND_BYTES))
        with pytest.raises(MessageTooLarge, match="nothing of the batch was sent"):
            producer.send_batch(["k0", "k1"], [b"small", bytes(BOUND_BYTES)])
    eventually(lambda: group.lag() == 0, WAIT_S)
    found = notes.read_text().splitlines()
    assert sorted(found) == sorted(sent)
    for key in ("k0", "k1", "k2"):
        assert [f for f in found if f.startswith(key)] == [s for s in sent if s.startswith(key)]
    # Whoever comes later reads them from files.
    late = tmp_path / "late"
    again = topology.group("again", queue="q").start(Digesting(late))
    eventually(lambda: again.lag() == 0, WAIT_S)
    assert sorted(late.read_text().splitlines()) == sorted(sent)
