"""What is promised to whoever waits for a round of commits, and whether that is kept."""

from __future__ import annotations

from dataclasses import dataclass

from pxrs_ray.consumer.member_machine import MemberMachine
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.model import Epoch, MemberId, Offset, PartitionId
from tests.simulation.history import Failed
from tests.simulation.simulator.world import World


@dataclass(frozen=True, slots=True)
class Promise:
    """So much of a partition was done when somebody began to wait for a round of commits."""

    round: int
    session: ConsumerSession
    partition: PartitionId
    epoch: Epoch
    checkpoint: Offset


class Promises:
    """All promises of one member that wait for a round."""

    def __init__(self, world: World, name: MemberId) -> None:
        self._world, self._name = world, name
        self._waiting: list[Promise] = []

    def add(
        self,
        round_: int,
        session: ConsumerSession,
        partition: PartitionId,
        epoch: Epoch,
        checkpoint: Offset,
    ) -> None:
        """When this round is over, so much is committed, if the partition is still held so."""
        self._waiting.append(Promise(round_, session, partition, epoch, checkpoint))

    def check(self, machine: MemberMachine) -> None:
        """What somebody waited for is committed, or lost."""
        rounds, session = machine.progress.rounds, machine.session
        for promise in [one for one in self._waiting if one.round <= rounds]:
            self._waiting.remove(promise)
            held = session.holdings.get(promise.partition)
            if promise.session is not session or held is None or held.epoch != promise.epoch:
                continue
            if held.committed.checkpoint < promise.checkpoint:
                text = f"{self._name}: round {rounds} is over, and {held} is behind {promise}"
                self._world.record(Failed(self._world.now_ms, "a round of commits", text))
