"""A producer: numbers what it sends per partition, and repeats it until it is acknowledged."""

from __future__ import annotations

import zlib
from collections import deque

from pxrs_ray.errors import ProducerError, ProducerFenced
from pxrs_ray.model import Offset, PartitionId
from tests.simulation.history import Acknowledged
from tests.simulation.simulator.log import LogProcess, Outgoing
from tests.simulation.simulator.world import Process, World, call

UNDER_WAY_MAX = 3
RETRY_MS = 120


class ProducerProcess(Process):
    """One producer of one epoch; a later one of the same name has a higher epoch."""

    role = "producer"

    def __init__(self, world: World, log: LogProcess, name: str, epoch: int) -> None:
        super().__init__(world, name)
        self.epoch = epoch
        self.sending = True
        self._log = log
        self._made = 0
        self._next_sequence: dict[PartitionId, int] = {}
        self._unsent: dict[PartitionId, deque[Outgoing]] = {}
        self._under_way: dict[tuple[PartitionId, int], Outgoing] = {}
        self.every(world.scenario.send_interval_ms, self._make)
        self.every(RETRY_MS, self._retry)

    def idle(self) -> bool:
        """Whether everything that was made is acknowledged."""
        return not self._under_way and not any(self._unsent.values())

    def _make(self) -> None:
        if not self.sending:
            return
        world = self.world
        self._made += 1
        key = f"key-{world.random.randrange(world.scenario.keys)}".encode()
        partition = zlib.crc32(key) % world.scenario.partitions
        sequence = self._next_sequence.get(partition, 0)
        self._next_sequence[partition] = sequence + 1
        message = f"{self.name}.{self.epoch}.{self._made}"
        waiting = self._unsent.setdefault(partition, deque())
        waiting.append(Outgoing(partition, key, message, self.name, self.epoch, sequence))
        self._send_more(partition)

    def _send_more(self, partition: PartitionId) -> None:
        waiting = self._unsent[partition]
        busy = sum(p == partition for p, _ in self._under_way)
        while waiting and busy < UNDER_WAY_MAX:
            message = waiting.popleft()
            self._under_way[(partition, message.sequence)] = message
            self._send(message)
            busy += 1

    def _send(self, message: Outgoing) -> None:
        def known(answer: Offset | ProducerError) -> None:
            self._answered(message, answer)

        call(self, self._log, lambda respond: self._log.append(message, respond), known)

    def _answered(self, message: Outgoing, answer: Offset | ProducerError) -> None:
        if isinstance(answer, ProducerFenced):
            self.crash()
        if isinstance(answer, ProducerError):
            return
        if self._under_way.pop((message.partition, message.sequence), None) is not None:
            self.world.record(
                Acknowledged(self.world.now_ms, message.partition, answer, message.message)
            )
            self._send_more(message.partition)

    def _retry(self) -> None:
        for message in list(self._under_way.values()):
            self._send(message)
