"""`GroupCounters`: counts a group's decisions, for metrics. Pure, and cheap for each commit."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from pxrs_ray.group.events import (
    Configure,
    Decision,
    Died,
    Event,
    Join,
    Leave,
    Raise,
    Rebalance,
    Seek,
    Tick,
)
from pxrs_ray.model import MemberWrite, Outcome, PartitionId, Write, WriteKind

PAUSES_KEPT = 10_000

CAUSES: dict[type[Event], str] = {
    Join: "join",
    Leave: "leave",
    Died: "death",
    Tick: "lease",
    Configure: "configuration",
    Rebalance: "asked",
    Seek: "seek",
    Raise: "raised",
}


class GroupCounters:
    """Counts of one group since its coordinator started; `pauses_ms` is emptied by its reader."""

    def __init__(self) -> None:
        self.commits = 0
        self.fenced = 0
        self.moves = 0
        self.rebalances: Counter[str] = Counter()
        self.pauses_ms: deque[int] = deque(maxlen=PAUSES_KEPT)
        self.hand_overs_ms: deque[int] = deque(maxlen=PAUSES_KEPT)
        self._released_ms: dict[PartitionId, int] = {}
        self._asked_ms: dict[PartitionId, int] = {}

    def note(self, event: Event | None, decision: Decision) -> None:
        """Count what a decision changes; `event` is None for the coordinator's own start."""
        if decision.reply is not None:
            self.fenced += sum(outcome is Outcome.FENCED for outcome in decision.reply.outcomes)
        if not decision.records:
            return
        cause = CAUSES.get(type(event)) if event is not None else None
        if cause is not None and any(record.version for record in decision.records):
            self.rebalances[cause] += 1
        for record in decision.records:
            if record.version == 0:
                self.commits += 1
            elif not isinstance(record, MemberWrite):
                self._note_move(record.kind, record.partition, record.at_ms)

    def note_hand_overs(
        self, revoking: Iterable[PartitionId], decision: Decision, now_ms: int
    ) -> None:
        """Measure the time from when an owner is asked for a partition to when the next one has
        it. `revoking` are all that are asked back after this decision."""
        for partition in revoking:
            self._asked_ms.setdefault(partition, now_ms)
        for record in decision.records:
            if isinstance(record, Write) and record.kind is WriteKind.CLAIM:
                asked_ms = self._asked_ms.pop(record.partition, None)
                if asked_ms is not None:
                    self.hand_overs_ms.append(now_ms - asked_ms)

    def _note_move(self, kind: WriteKind, partition: PartitionId, at_ms: int) -> None:
        if kind is WriteKind.RELEASE:
            self._released_ms[partition] = at_ms
        elif kind is WriteKind.CLAIM:
            self.moves += 1
            released_ms = self._released_ms.pop(partition, None)
            if released_ms is not None:
                self.pauses_ms.append(max(0, at_ms - released_ms))
