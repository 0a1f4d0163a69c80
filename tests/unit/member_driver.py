"""Drives a member's machine in a test: answers what it asks, and looks at what it wants done."""

from __future__ import annotations

from typing import Any

from pxrs_ray.consumer.member_effects import (
    Ask,
    Fetch,
    MemberChannel,
    MemberEffect,
    MemberOptions,
    PartRead,
    Rest,
    WakeChannel,
)
from pxrs_ray.consumer.member_machine import MemberMachine
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import (
    DeadlineExceeded,
    PxrsError,
    UnknownMember,
)
from pxrs_ray.group.events import Assignment, Response
from pxrs_ray.model import Grant
from tests.works import Works

LEASE_S = 6.0
INTERVAL_S = 1.0
BYTES_MAX = 100
LATE = DeadlineExceeded("not heard")
UNKNOWN = UnknownMember("who?")


class Driver:
    """One machine, the time, and what it wanted done since the last look."""

    def __init__(self, buffers: int = 1) -> None:
        self.works = Works()
        self.now_s = 100.0
        self.machine = MemberMachine(
            ConsumerSession("A", 1, self.works),
            self.works,
            MemberOptions(INTERVAL_S, BYTES_MAX),
            buffers,
            LEASE_S,
        )
        self.sequence = 0

    def effects(self) -> list[MemberEffect]:
        found = []
        while (effect := self.machine.take_effect()) is not None:
            found.append(effect)
        return found

    def woken(self) -> set[int]:
        return {effect.channel for effect in self.effects() if isinstance(effect, WakeChannel)}

    def told(self, *grants: Grant, **changed: Any) -> Assignment:
        self.sequence += 1
        revoking = frozenset(changed.pop("revoking", ()))
        incarnation = self.machine.session.incarnation
        return Assignment(1, self.sequence, "A", incarnation, grants, revoking, 1_000, **changed)

    def next(self, channel: MemberChannel) -> Ask | Rest:
        return self.machine.next(channel, self.now_s)

    def asks(self, channel: MemberChannel) -> Ask:
        found = self.next(channel)
        assert isinstance(found, Ask), found
        return found

    def fetches(self, buffer: int = 0) -> Fetch:
        found = self.machine.next_fetch(buffer, self.now_s)
        assert isinstance(found, Fetch), found
        return found

    def heard(self, assignment: Assignment | None = None) -> None:
        """A heartbeat is asked and answered at once."""
        reply = Response(1, assignment=assignment, lease_ms=int(LEASE_S * 1_000))
        self.machine.answered(self.asks(MemberChannel.HEARTBEAT), reply, self.now_s)

    def owns(self, *grants: Grant, **changed: Any) -> None:
        """It is a member with a lease, and owns these."""
        self.heard(self.told(*grants, **changed))
        self.effects()

    def refused(self, ask: Ask, error: PxrsError) -> bool:
        return self.machine.refused(ask, error, self.now_s)


def read(base: int, count: int, partition: int = 0, to: int | None = None) -> PartRead:
    batch = Batch.of([None] * count, [b"x"] * count, timestamp_ms=0)
    batch = Batch(partition, base, batch.flags, batch.columns, 0)
    return PartRead(partition, (batch,), base + count if to is None else to, 10)
