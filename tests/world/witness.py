"""Judges a world from outside: by what producers were told, handlers did, and the store keeps.

Nothing here looks into a coordinator, a consumer or a buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pxrs_ray.model import Outcome, Record, Write, WriteKind

WRONG_MAX = 20


@dataclass(frozen=True, slots=True)
class Handled:
    """One message in a handler's hands, from its beginning to its end."""

    began_s: float
    ended_s: float
    group: str
    queue: str
    partition: int
    epoch: int
    offset: int
    member: str
    pid: int
    key: str
    text: str


class Witness:
    """Sees everything that anybody outside could see; `wrong` is what breaks a promise."""

    def __init__(self) -> None:
        self.handled: list[Handled] = []
        self.acknowledged: dict[str, tuple[str, int, int | None]] = {}
        self.acknowledged_s: dict[str, float] = {}
        self.wrong: list[str] = []
        self.commits = 0
        self.unacknowledged_too = False
        self._begun: dict[tuple[str, int], int] = {}
        self._done: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._through: dict[tuple[str, int], int] = defaultdict(int)
        self._rows: dict[tuple[str, int], tuple[int, int]] = {}

    def _breaks(self, what: str) -> None:
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append(what)

    # --- producers --------------------------------------------------------------------------------

    def acknowledge(
        self, text: str, queue: str, partition: int, offset: int | None, at_s: float
    ) -> None:
        """A producer was told where a message is."""
        self.acknowledged.setdefault(text, (queue, partition, offset))
        self.acknowledged_s.setdefault(text, at_s)

    # --- handlers ---------------------------------------------------------------------------------

    def begin(self, group: str, partition: int, epoch: int, who: str, offset: int) -> None:
        """A handler begins: nobody with a newer epoch may have begun before it."""
        place = (group, partition)
        newest = self._begun.get(place, 0)
        if epoch < newest:
            self._breaks(
                f"{who} begins {group}/{partition}@{offset} under epoch {epoch}, "
                f"and epoch {newest} had begun"
            )
        self._begun[place] = max(epoch, newest)

    def end(self, handled: Handled) -> None:
        """A handler is done with a message."""
        self.handled.append(handled)
        self._done[handled.group, handled.partition].add(handled.offset)

    # --- the store --------------------------------------------------------------------------------

    def written(
        self, group: str, before: Any, records: Sequence[Record], outcomes: Sequence[Outcome]
    ) -> None:
        """The store has answered a write; `before` is the group's snapshot before it."""
        name = group.partition("/")[2]
        rows = {row.partition: (row.epoch, row.checkpoint) for row in before.partitions}
        for record, outcome in zip(records, outcomes, strict=True):
            if outcome is not Outcome.APPLIED or not isinstance(record, Write):
                continue
            epoch, checkpoint = rows[record.partition]
            if record.kind is WriteKind.COMMIT:
                self._committed(name, record, epoch, checkpoint)
                rows[record.partition] = (epoch, max(checkpoint, record.checkpoint))
            else:
                at = record.checkpoint if record.kind is WriteKind.RESET else checkpoint
                # A repeat of a change that is stored is applied, and changes nothing.
                rows[record.partition] = (max(epoch, record.epoch + 1), at)

    def _committed(self, group: str, write: Write, epoch: int, checkpoint: int) -> None:
        self.commits += 1
        place = f"{group}/{write.partition}"
        if write.epoch != epoch:
            self._breaks(f"a commit under epoch {write.epoch} is stored in {place} at {epoch}")
        if write.checkpoint < checkpoint:
            self._breaks(f"{place} falls from {checkpoint} to {write.checkpoint}")
        done = self._done[group, write.partition]
        through = self._through[group, write.partition]
        while through in done:
            through += 1
        self._through[group, write.partition] = through
        if write.checkpoint > through:
            self._breaks(f"{place} is committed to {write.checkpoint}, handled is up to {through}")

    # --- at the end -------------------------------------------------------------------------------

    def judge(self) -> list[str]:
        """Everything that is wrong when all has come to rest."""
        handled = {one.text for one in self.handled}
        lost = [text for text in self.acknowledged if text not in handled]
        if lost:
            self._breaks(f"{len(lost)} acknowledged and never handled: {sorted(lost)[:5]}")
        self._same_place()
        self._in_order()
        return self.wrong

    def slow(self, seconds_max: float) -> list[str]:
        """Messages that were handled too long after they were acknowledged."""
        first: dict[str, float] = {}
        for one in self.handled:
            first[one.text] = min(one.began_s, first.get(one.text, one.began_s))
        waited = {
            text: first[text] - at_s for text, at_s in self.acknowledged_s.items() if text in first
        }
        text = max(waited, key=lambda text: waited[text], default="")
        if not text or waited[text] <= seconds_max:
            return []
        many = sum(seconds > seconds_max for seconds in waited.values())
        return [f"{text} waited for {waited[text]:.1f} s ({many} for over {seconds_max:g} s)"]

    def _same_place(self) -> None:
        """An offset holds one message for ever, and an acknowledged one is where it was told."""
        found: dict[tuple[str, int, int], str] = {}
        for one in self.handled:
            place = (one.queue, one.partition, one.offset)
            if found.setdefault(place, one.text) != one.text:
                self._breaks(f"{place} was {found[place]} and is {one.text}")
        for text, (queue, partition, offset) in self.acknowledged.items():
            told = found.get((queue, partition, offset)) if offset is not None else text
            if told is not None and told != text:
                self._breaks(f"{text} was told to be at {partition}@{offset}, there is {told}")

    def _in_order(self) -> None:
        """First handlings of a key's messages begin in the order of sending.

        What was not acknowledged counts where its producer promises that: it has an identity.
        """
        newest: dict[str, tuple[int, str]] = {}
        seen: set[str] = set()
        copies: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
        for one in sorted(self.handled, key=lambda one: one.began_s):
            copies[one.text].add((one.queue, one.partition, one.offset))
            known = self.unacknowledged_too or one.text in self.acknowledged
            if one.text in seen or not known:
                continue
            seen.add(one.text)
            number = int(one.text.rpartition(":")[2])
            if number < newest.get(one.key, (-1, ""))[0]:
                self._breaks(f"{one.text} is handled after {newest[one.key][1]} of the same key")
            newest[one.key] = max(newest.get(one.key, (-1, "")), (number, one.text))
        for text, places in copies.items():
            if len(places) > 1 and text in self.acknowledged:
                self._breaks(f"{text} is in the logs {len(places)} times: {sorted(places)}")
