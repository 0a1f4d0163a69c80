"""A producer whose process is killed with messages everywhere on their way comes back, on Ray."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.actors.client.producer_start import begin_producer
from pxrs_ray.errors import ProducerFenced
from pxrs_ray.partitioning import Partitioner
from tests.actors.buffers import WAIT_S, Buffers, running_buffers
from tests.settings import producer_limits

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

LIVES = 4
LIFE = 10**6
KEYS = 8


class Life:
    """A producer in a process of its own, which sends without a pause."""

    def __init__(self, topology: str, partitions: int, buffers: int, number: int) -> None:
        identity = begin_producer(topology, "q", buffers, "orders")
        limits = producer_limits(linger_ms=0)
        self._producer = Producer(
            topology, "q", buffers, Partitioner(partitions), limits, producer_id=identity
        )
        self._first = number * LIFE
        self._sent = self._acknowledged = 0

    def pid(self) -> int:
        return os.getpid()

    def start(self) -> None:
        threading.Thread(target=self._send, daemon=True).start()

    def _send(self) -> None:
        while True:
            receipts = []
            for _ in range(50):
                at = self._sent
                receipts.append(
                    self._producer.send(b"%d" % (at % KEYS), b"%d" % (self._first + at))
                )
                self._sent += 1
            receipts[0].result(WAIT_S)
            self._acknowledged = self._sent - 49

    def progress(self) -> int:
        return self._acknowledged

    def fenced(self) -> bool:
        try:
            self._producer.send(b"witness", b"0").result(WAIT_S)
        except ProducerFenced:
            return True
        return False


def made(buffers: Buffers, number: int) -> Any:
    life = ray.remote(Life).options(max_concurrency=4, num_cpus=0)
    return life.remote(buffers.topology, buffers.partitions, buffers.count, number)


def inversions(buffers: Buffers) -> tuple[int, int]:
    """How often a message of a key stands behind a newer one, and how many messages there are."""
    found = messages = 0
    for partition in range(buffers.partitions):
        newest: dict[bytes | None, int] = {}
        for message in buffers.messages(partition):
            messages += 1
            number = int(message.payload)
            found += number < newest.get(message.key, -1)
            newest[message.key] = max(number, newest.get(message.key, -1))
    return found, messages


def test_no_message_of_a_killed_producer_lands_behind_its_successors(tmp_path: Path) -> None:
    with running_buffers(tmp_path, partitions=4, count=2) as buffers:
        told = 0
        for number in range(LIVES):
            life = made(buffers, number)
            ray.get(life.start.remote(), timeout=WAIT_S)
            wanted = time.monotonic() + WAIT_S
            while ray.get(life.progress.remote(), timeout=WAIT_S) < 300:
                assert time.monotonic() < wanted
            frozen = buffers.pids()
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)  # what is sent from now on waits before the buffers
            time.sleep(0.3)
            told += ray.get(life.progress.remote(), timeout=WAIT_S)
            os.kill(ray.get(life.pid.remote(), timeout=WAIT_S), signal.SIGKILL)
            if number == 1:
                os.kill(frozen[0], signal.SIGKILL)  # this one starts anew
            for pid in frozen if number != 1 else frozen[1:]:
                os.kill(pid, signal.SIGCONT)
        found, messages = inversions(buffers)
        assert found == 0
        assert messages >= told, "what was acknowledged is there"


def test_a_producer_that_hung_is_fenced_when_it_wakes(tmp_path: Path) -> None:
    with running_buffers(tmp_path, partitions=4, count=2) as buffers:
        former = made(buffers, 0)
        ray.get(former.start.remote(), timeout=WAIT_S)
        while ray.get(former.progress.remote(), timeout=WAIT_S) < 100:
            pass
        pid = ray.get(former.pid.remote(), timeout=WAIT_S)
        os.kill(pid, signal.SIGSTOP)
        successor = made(buffers, 1)
        ray.get(successor.start.remote(), timeout=WAIT_S)
        while ray.get(successor.progress.remote(), timeout=WAIT_S) < 300:
            pass
        os.kill(pid, signal.SIGCONT)
        assert ray.get(former.fenced.remote(), timeout=WAIT_S)
        assert not ray.get(successor.fenced.remote(), timeout=WAIT_S)
        for handle in (former, successor):
            ray.kill(handle)
        assert inversions(buffers)[0] == 0
