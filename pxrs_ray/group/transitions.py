"""What may happen when: the one transition table of partitions and of members.

Rules of this file. A pair that is not in a table is illegal: `advance` raises
`IllegalTransition` and nothing has changed. Whether a legal event is also *authorised* (right
epoch, right incarnation) is the coordinator's question, not this file's.

A partition walks UNOWNED -> OWNED -> REVOKING -> UNOWNED. It reaches an owner only from
UNOWNED, which is what makes "one owner at a time" a property of this table: a hand-over has to
pass through a release. A partition may also be released straight from OWNED (its owner died,
or gave it up), and reset (a seek) only while nobody owns it.

A member is ACTIVE while its lease runs, LEAVING while it hands its partitions back, and AWAY
between its death and the end of its grace period: its partitions are unowned then, for nobody
may act for a dead member, but they are kept for it. GONE is not kept at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from pxrs_ray.errors import IllegalTransition


class PartitionPhase(StrEnum):
    """The phases of a partition between two owners."""

    UNOWNED = "unowned"
    OWNED = "owned"
    REVOKING = "revoking"


class PartitionEvent(StrEnum):
    """What can happen to a partition."""

    CLAIM = "claim"
    REVOKE = "revoke"
    COMMIT = "commit"
    RELEASE = "release"
    RESET = "reset"


class MemberPhase(StrEnum):
    """The phases of a member between joining and being forgotten."""

    GONE = "gone"
    ACTIVE = "active"
    LEAVING = "leaving"
    AWAY = "away"


class MemberEvent(StrEnum):
    """What can happen to a member. ACT is any call that only a registered member may make."""

    JOIN = "join"
    ACT = "act"
    LEAVE = "leave"
    DIE = "die"
    GRACE_OVER = "grace_over"
    FINISH = "finish"


PARTITION_TABLE: Mapping[PartitionPhase, Mapping[PartitionEvent, PartitionPhase]] = {
    PartitionPhase.UNOWNED: {
        PartitionEvent.CLAIM: PartitionPhase.OWNED,
        PartitionEvent.RESET: PartitionPhase.UNOWNED,
    },
    PartitionPhase.OWNED: {
        PartitionEvent.COMMIT: PartitionPhase.OWNED,
        PartitionEvent.REVOKE: PartitionPhase.REVOKING,
        PartitionEvent.RELEASE: PartitionPhase.UNOWNED,
    },
    PartitionPhase.REVOKING: {
        PartitionEvent.COMMIT: PartitionPhase.REVOKING,
        PartitionEvent.RELEASE: PartitionPhase.UNOWNED,
    },
}

MEMBER_TABLE: Mapping[MemberPhase, Mapping[MemberEvent, MemberPhase]] = {
    MemberPhase.GONE: {
        MemberEvent.JOIN: MemberPhase.ACTIVE,
    },
    MemberPhase.ACTIVE: {
        MemberEvent.JOIN: MemberPhase.ACTIVE,
        MemberEvent.ACT: MemberPhase.ACTIVE,
        MemberEvent.LEAVE: MemberPhase.LEAVING,
        MemberEvent.DIE: MemberPhase.AWAY,
    },
    MemberPhase.LEAVING: {
        MemberEvent.JOIN: MemberPhase.ACTIVE,
        MemberEvent.ACT: MemberPhase.LEAVING,
        MemberEvent.LEAVE: MemberPhase.LEAVING,
        MemberEvent.DIE: MemberPhase.GONE,
        MemberEvent.FINISH: MemberPhase.GONE,
    },
    MemberPhase.AWAY: {
        MemberEvent.JOIN: MemberPhase.ACTIVE,
        MemberEvent.LEAVE: MemberPhase.GONE,
        MemberEvent.GRACE_OVER: MemberPhase.GONE,
    },
}

_State = TypeVar("_State", PartitionPhase, MemberPhase)
_Event = TypeVar("_Event", PartitionEvent, MemberEvent)


def advance(
    table: Mapping[_State, Mapping[_Event, _State]], state: _State, event: _Event, what: str
) -> _State:
    """The state that `event` leads to, or IllegalTransition naming `what` it happened to."""
    try:
        return table[state][event]
    except KeyError:
        raise IllegalTransition(f"{what} is {state.value}: it cannot {event.value}") from None
