"""What must never have happened, whatever failed. Pure: it reads what witnesses noted.

Each rule answers lines, one a violation, and knows nothing of the product. Delivery is at least
once, so a message that was handled twice is counted and no violation; see `Verdict`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.hosts.notes import Acknowledged, Fact, Handled, Refused, Sent, of

SHOWN = 10


@dataclass(frozen=True)
class Verdict:
    """Violations by rule, and counts that a summary tells."""

    violations: dict[str, list[str]]
    sent: int
    acknowledged: int
    refused: int
    handled: int
    handled_again: int
    overlap_ms: float = field(default=0.0)

    @property
    def sound(self) -> bool:
        """Whether no rule was broken."""
        return not any(self.violations.values())

    def __str__(self) -> str:
        broken = ", ".join(f"{len(lines)} {rule}" for rule, lines in self.violations.items())
        lines = [
            f"{self.acknowledged} acknowledged of {self.sent} sent ({self.refused} refused), "
            f"{self.handled} handled ({self.handled_again} again), longest overlap "
            f"{self.overlap_ms:.0f} ms; violations: {broken}"
        ]
        for rule, found in self.violations.items():
            lines += [f"  {rule}: {line}" for line in found[:SHOWN]]
        return "\n".join(lines)


def judge(
    facts: Iterable[Fact],
    *,
    given_up: Collection[int] = (),
    overlap_s_max: float = 0.0,
    all_handled: bool = True,
) -> Verdict:
    """Judge one run that has come to rest.

    `given_up`: partitions whose disk was taken away, and where that was told: what was
    acknowledged there may be lost, and nothing else is excused. `overlap_s_max`: for how long a
    message that its owner began in time may still be in its hands. `all_handled=False`: nobody
    read, so what was acknowledged need not have been handled.
    """
    facts = list(facts)
    acknowledged, handled = of(Acknowledged, facts), of(Handled, facts)
    handled.sort(key=lambda one: one.from_s)
    expected = [ack for ack in acknowledged if ack.partition not in given_up]
    firsts = {(one.partition, one.offset) for one in handled}
    return Verdict(
        violations={
            "lost": list(lost(expected, handled)) if all_handled else [],
            "offset given twice": list(offsets_twice(acknowledged, handled)),
            "epoch of two": list(epochs_of_two(handled)),
            "stale epoch": list(stale_epochs(handled)),
            "overlap": list(overlaps(handled, overlap_s_max)),
            "out of order": [
                *appended_out_of_order(acknowledged),
                *out_of_order(expected, handled),
            ],
            "from nowhere": list(from_nowhere(of(Sent, facts), acknowledged, handled)),
        },
        sent=len(of(Sent, facts)),
        acknowledged=len(acknowledged),
        refused=len(of(Refused, facts)),
        handled=len(handled),
        handled_again=len(handled) - len(firsts),
        overlap_ms=max((late for late, _ in _overlapping(handled)), default=0.0) * 1_000,
    )


def lost(acknowledged: Iterable[Acknowledged], handled: Iterable[Handled]) -> Iterator[str]:
    """Acknowledged, and no handler has seen it."""
    seen = {(one.key, one.sequence) for one in handled}
    for ack in acknowledged:
        if (ack.key, ack.sequence) not in seen:
            yield f"{_name(ack)} at P{ack.partition} offset {ack.offset}"


def offsets_twice(
    acknowledged: Iterable[Acknowledged], handled: Iterable[Handled]
) -> Iterator[str]:
    """One place, two messages, whoever told of them."""
    names: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    every: list[Acknowledged | Handled] = [*acknowledged, *handled]
    for one in every:
        names[one.partition, one.offset][_name(one)] = None
    for (partition, offset), found in names.items():
        if len(found) > 1:
            yield f"P{partition} offset {offset}: {' and '.join(found)}"


def epochs_of_two(handled: Iterable[Handled]) -> Iterator[str]:
    """One epoch of a partition, worked under by two consumers."""
    workers: dict[tuple[int, int], dict[object, None]] = defaultdict(dict)
    for one in handled:
        workers[one.partition, one.epoch][one.worker] = None
    for (partition, epoch), found in workers.items():
        if len(found) > 1:
            yield f"P{partition} epoch {epoch}: {' and '.join(str(worker) for worker in found)}"


def stale_epochs(handled: Iterable[Handled]) -> Iterator[str]:
    """Begun under an epoch after another message was begun under a newer one (given in time)."""
    newest: dict[int, Handled] = {}
    for one in handled:
        known = newest.get(one.partition)
        if known is not None and one.epoch < known.epoch:
            late_s = one.from_s - known.from_s
            yield (
                f"P{one.partition} offset {one.offset} under epoch {one.epoch} by {one.worker}, "
                f"{late_s:.3f} s after the first under epoch {known.epoch}"
            )
        elif known is None or one.epoch > known.epoch:
            newest[one.partition] = one


def overlaps(handled: list[Handled], seconds_max: float) -> Iterator[str]:
    """Still in the old owner's hands so long after the new one's first message."""
    for late_s, one in _overlapping(handled):
        if late_s > seconds_max:
            yield (
                f"P{one.partition} offset {one.offset} under epoch {one.epoch} by {one.worker} "
                f"for {late_s:.3f} s beside its successor"
            )


def _overlapping(handled: list[Handled]) -> Iterator[tuple[float, Handled]]:
    """(How long after the next epoch's first message it ended, the message)."""
    firsts: dict[int, dict[int, float]] = defaultdict(dict)
    for one in handled:
        firsts[one.partition].setdefault(one.epoch, one.from_s)
    for one in handled:
        newer = [at_s for epoch, at_s in firsts[one.partition].items() if epoch > one.epoch]
        if newer and one.to_s > min(newer):
            yield one.to_s - min(newer), one


def appended_out_of_order(acknowledged: Iterable[Acknowledged]) -> Iterator[str]:
    """A key's later message at a lower or the same place, or in another partition."""
    keys: dict[str, list[Acknowledged]] = defaultdict(list)
    for ack in acknowledged:
        keys[ack.key].append(ack)
    for found in keys.values():
        for before, after in pairwise(sorted(found, key=lambda ack: ack.sequence)):
            if before.partition != after.partition:
                yield f"{_name(before)} is in P{before.partition}, {_name(after)} not"
            elif before.offset >= after.offset:
                yield f"{_name(before)} at {before.offset}, {_name(after)} at {after.offset}"


def out_of_order(expected: Iterable[Acknowledged], handled: Iterable[Handled]) -> Iterator[str]:
    """A key's messages, each for its first time, not in the order in which they were sent.

    Within one epoch each key goes up and nothing is repeated. What was never acknowledged may be
    missing, and comes in its turn if it comes.
    """
    sure = {(ack.key, ack.sequence) for ack in expected}
    highest: dict[str, int] = {}
    last: dict[tuple[str, int, object], Handled] = {}
    first_seen: set[tuple[str, int]] = set()
    for one in handled:
        before = last.get((one.key, one.epoch, one.worker))
        if before is not None and before.sequence >= one.sequence:
            yield f"{_name(one)} after {_name(before)} under epoch {one.epoch} by {one.worker}"
        last[one.key, one.epoch, one.worker] = one
        name = (one.key, one.sequence)
        if name in sure and name not in first_seen:
            first_seen.add(name)
            if one.sequence < highest.get(one.key, -1):
                yield f"{_name(one)} for the first time after {one.key}:{highest[one.key]}"
            highest[one.key] = max(one.sequence, highest.get(one.key, -1))


def from_nowhere(
    sent: Iterable[Sent], acknowledged: Iterable[Acknowledged], handled: Iterable[Handled]
) -> Iterator[str]:
    """Acknowledged or handled, and nobody meant to send it."""
    meant = {(one.key, one.sequence) for one in sent}
    every: list[Acknowledged | Handled] = [*acknowledged, *handled]
    for one in every:
        if (one.key, one.sequence) not in meant:
            yield _name(one)


def _name(one: Acknowledged | Handled) -> str:
    return f"{one.key}:{one.sequence}"
