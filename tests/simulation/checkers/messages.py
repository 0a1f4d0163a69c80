"""What becomes of messages: appended once, none lost, in order, done once if promised."""

from __future__ import annotations

from bisect import bisect_left

from pxrs_ray.model import Epoch, Offset, Outcome, PartitionId, Write, WriteKind
from tests.simulation.checkers.base import Checker
from tests.simulation.history import (
    Acknowledged,
    Answered,
    Appended,
    Ended,
    HandlersDied,
    Processed,
    PutAside,
    Raised,
    Stored,
)

Reign = tuple[PartitionId, Epoch]

RELEASED_BY_OWNER = "released by"
"""How the cause of a release begins that its owner asked for: a clean hand-over."""


class AppendedOnce(Checker):
    """Offsets have no gap, no message is there twice, and each producer's order is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[PartitionId, Offset] = {}
        self._where: dict[str, tuple[PartitionId, Offset]] = {}
        self._sequences: dict[tuple[str, PartitionId], tuple[int, int, Offset]] = {}
        self._home: dict[bytes, PartitionId] = {}
        # A log that fails just then is read only when it is open again.
        self._unseen: dict[str, Acknowledged] = {}

    def on_appended(self, event: Appended) -> None:
        """Compare with everything that was appended before."""
        expected = self._ends.get(event.partition, 0)
        if event.offset != expected:
            self.broken(event.at_ms, f"{event}: offset {expected} was next")
        self._ends[event.partition] = event.offset + 1
        if event.message in self._where:
            self.broken(event.at_ms, f"{event} is at {self._where[event.message]} already")
        self._where[event.message] = (event.partition, event.offset)
        if event.message in self._unseen:
            self.on_acknowledged(self._unseen.pop(event.message))
        source = (event.producer, event.partition)
        epoch, sequence, offset = self._sequences.get(source, (-1, -1, -1))
        if event.within:  # behind the one before it, of the same frame
            in_line = (epoch, sequence, offset + 1)
        elif event.producer_epoch > epoch:
            in_line = (event.producer_epoch, 0, event.offset)
        else:
            in_line = (epoch, sequence + 1, event.offset)
        if (event.producer_epoch, event.sequence, event.offset) != in_line:
            self.broken(event.at_ms, f"{event} came after epoch {epoch}, sequence {sequence}")
        self._sequences[source] = (event.producer_epoch, event.sequence, event.offset)
        if self._home.setdefault(event.key, event.partition) != event.partition:
            self.broken(event.at_ms, f"{event}: its key lives in {self._home[event.key]}")

    def on_acknowledged(self, event: Acknowledged) -> None:
        """What a producer is told is where it is told, or will be."""
        if event.message not in self._where:
            self._unseen[event.message] = event
        elif self._where.get(event.message) != (event.partition, event.offset):
            self.broken(event.at_ms, f"{event}, and it is at {self._where.get(event.message)}")

    def on_ended(self, event: Ended) -> None:
        """By now it is there."""
        for told in self._unseen.values():
            self.broken(event.at_ms, f"{told}, and it is nowhere")


class NothingLost(Checker):
    """When all is at rest, every message was processed, but for those that a seek passed over."""

    def __init__(self) -> None:
        super().__init__()
        self._processed: dict[PartitionId, set[Offset]] = {}

    def on_processed(self, event: Processed | PutAside) -> None:
        """One that is not lost."""
        self._processed.setdefault(event.partition, set()).add(event.offset)

    on_putaside = on_processed

    def on_stored(self, event: Stored) -> None:
        """A seek forward passes messages over."""
        record, before, after = event.record, event.before, event.after
        if isinstance(record, Write) and record.kind is WriteKind.RESET and before and after:
            skipped = range(before.checkpoint, after.checkpoint)
            self._processed.setdefault(record.partition, set()).update(skipped)

    def on_ended(self, event: Ended) -> None:
        """Count."""
        for partition, end in event.ends.items():
            lost = set(range(end)) - self._processed.get(partition, set())
            if lost:
                self.broken(event.at_ms, f"partition {partition} lost {sorted(lost)[:10]}")


class CheckpointsCovered(Checker):
    """A checkpoint passes only what somebody has processed, or a seek has passed over."""

    def __init__(self) -> None:
        super().__init__()
        self._processed: dict[PartitionId, set[Offset]] = {}
        self._covered: dict[PartitionId, Offset] = {}

    def on_processed(self, event: Processed | PutAside) -> None:
        """One that may be passed."""
        self._processed.setdefault(event.partition, set()).add(event.offset)

    on_putaside = on_processed

    def on_stored(self, event: Stored) -> None:
        """Look at what each checkpoint passes for the first time."""
        record, after = event.record, event.after
        if not isinstance(record, Write) or event.before == after or after is None:
            return
        partition, covered = record.partition, self._covered.get(record.partition, 0)
        if record.kind in (WriteKind.COMMIT, WriteKind.RELEASE):
            passed = set(range(covered, after.checkpoint))
            missing = passed - self._processed.get(partition, set())
            if missing:
                self.broken(event.at_ms, f"{record}: nobody processed {sorted(missing)[:5]}")
        self._covered[partition] = max(covered, after.checkpoint)


class InOrder(Checker):
    """Messages of a partition, and so of a key, are processed in the order of their offsets.

    Within an epoch: from the granted checkpoint on, each exactly once. Over all owners: nothing
    is processed for the first time before everything that lies below it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[Reign, Offset] = {}
        self._frontier: dict[PartitionId, Offset] = {}

    def on_stored(self, event: Stored) -> None:
        """A claim says where its owner begins; a seek, where everybody goes on."""
        record, after = event.record, event.after
        if not isinstance(record, Write) or event.before == after or after is None:
            return
        if record.kind is WriteKind.CLAIM:
            self._next[(record.partition, after.epoch)] = after.checkpoint
        elif record.kind is WriteKind.RESET:
            frontier = self._frontier.get(record.partition, 0)
            self._frontier[record.partition] = max(frontier, after.checkpoint)

    def on_processed(self, event: Processed | PutAside) -> None:
        """Compare with what was processed before."""
        reign = (event.partition, event.epoch)
        expected = self._next.get(reign, event.offset)
        if event.offset != expected:
            self.broken(event.at_ms, f"{event}: {expected} was next under this epoch")
        self._next[reign] = event.offset + 1
        frontier = self._frontier.get(event.partition, 0)
        if event.offset > frontier:
            self.broken(event.at_ms, f"{event}: nobody has processed {frontier} yet")
        self._frontier[event.partition] = max(frontier, event.offset + 1)

    on_putaside = on_processed


class KeysInOrder(Checker):
    """Messages of one key are processed in their order, also where keys are worked in parallel.

    This is what holds when several messages of a partition are in work at once (`InOrder` asks
    for more): per key, nothing is processed for the first time before all of its that came
    earlier, and within an epoch nothing twice or backwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self._offsets: dict[tuple[PartitionId, bytes], list[Offset]] = {}
        self._done: dict[tuple[PartitionId, bytes], int] = {}
        self._latest: dict[tuple[PartitionId, Epoch, bytes], Offset] = {}

    def on_appended(self, event: Appended) -> None:
        """The order of a key is that of the log."""
        self._offsets.setdefault((event.partition, event.key), []).append(event.offset)

    def on_stored(self, event: Stored) -> None:
        """A seek forward passes messages of every key over."""
        record, after = event.record, event.after
        if isinstance(record, Write) and record.kind is WriteKind.RESET and after is not None:
            for place, offsets in self._offsets.items():
                if place[0] == record.partition:
                    passed = bisect_left(offsets, after.checkpoint)
                    self._done[place] = max(passed, self._done.get(place, 0))

    def on_processed(self, event: Processed | PutAside) -> None:
        """Compare with what was processed of this key before."""
        reign = (event.partition, event.epoch, event.key)
        if event.offset <= self._latest.get(reign, -1):
            self.broken(event.at_ms, f"{event} after {self._latest[reign]} of the same key")
        self._latest[reign] = event.offset
        place = (event.partition, event.key)
        offsets = self._offsets.get(place, [])
        index, done = bisect_left(offsets, event.offset), self._done.get(place, 0)
        if index > done:
            self.broken(event.at_ms, f"{event} before {offsets[done]} of the same key")
        self._done[place] = max(done, index + 1)

    on_putaside = on_processed


class DoneOnce(Checker):
    """A clean hand-over repeats nothing, and what was acknowledged is never done again later.

    Messages are repeated only after an unclean end, and only those that were not acknowledged.
    """

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[Reign, Offset] = {}
        self._handed_back: set[Reign] = set()
        self._acknowledged: dict[PartitionId, dict[Epoch, Offset]] = {}
        self._reset: dict[PartitionId, Epoch] = {}

    def on_stored(self, event: Stored) -> None:
        """Watch how ownerships end."""
        record, after = event.record, event.after
        if not isinstance(record, Write) or event.before == after or after is None:
            return
        if record.kind is WriteKind.RESET:
            self._reset[record.partition] = after.epoch
            self._acknowledged.pop(record.partition, None)
        elif record.kind is WriteKind.RELEASE and record.cause.startswith(RELEASED_BY_OWNER):
            reign = (record.partition, record.epoch)
            self._handed_back.add(reign)
            if self._done.get(reign, 0) > after.checkpoint:
                self.broken(
                    event.at_ms,
                    f"{record} left {after.checkpoint}, but {self._done[reign]} was reached",
                )

    def on_answered(self, event: Answered) -> None:
        """From here on nobody later may do these again."""
        for row, outcome in zip(event.rows, event.outcomes, strict=True):
            if outcome is Outcome.APPLIED and row.epoch >= self._reset.get(row.partition, 0):
                of_partition = self._acknowledged.setdefault(row.partition, {})
                of_partition[row.epoch] = row.progress.checkpoint

    def on_processed(self, event: Processed | PutAside) -> None:
        """Compare with what was handed back and acknowledged."""
        reign = (event.partition, event.epoch)
        if reign in self._handed_back:
            self.broken(event.at_ms, f"{event} after its owner had handed the partition back")
        self._done[reign] = event.offset + 1
        for epoch, checkpoint in self._acknowledged.get(event.partition, {}).items():
            if epoch < event.epoch and event.offset < checkpoint:
                self.broken(
                    event.at_ms, f"{event}, but {checkpoint} was acknowledged in epoch {epoch}"
                )

    on_putaside = on_processed


class PutAsideForCause(Checker):
    """A message is put aside only when it has failed as often as its policy wants: its handler
    raised, or its process died with it alone in hand."""

    def __init__(self) -> None:
        super().__init__()
        self._failed: dict[tuple[PartitionId, Offset], int] = {}

    def on_raised(self, event: Raised) -> None:
        """That is one failure."""
        self._count(event.partition, event.offset)

    def on_handlersdied(self, event: HandlersDied) -> None:
        """Who was alone in hand is the cause, and nobody else can be said to be."""
        if len(event.places) == 1:
            partition, first, end = event.places[0]
            if end - first == 1:
                self._count(partition, first)

    def _count(self, partition: PartitionId, offset: Offset) -> None:
        place = (partition, offset)
        self._failed[place] = self._failed.get(place, 0) + 1

    def on_putaside(self, event: PutAside) -> None:
        """Count."""
        failed = self._failed.get((event.partition, event.offset), 0)
        if failed < event.attempts_max:
            self.broken(event.at_ms, f"{event}: it has failed {failed} times")
