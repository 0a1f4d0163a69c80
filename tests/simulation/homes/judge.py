"""Judges a world of homes from outside: by what was acknowledged, opened, given out and served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pxrs_ray.model import Epoch, Offset, PartitionId, PartitionRow, Slot
from pxrs_ray.topology.homes import Homes
from tests.simulation.simulator.world import DRIFT_PART, World

if TYPE_CHECKING:
    from tests.simulation.homes.machines import BufferProcess, Machines

SHOWN = 6
SLOTS = 3
# So long a registry that went back may go unnoticed while all hosts are there.
NOTICED_MS = 1_500
# A host's clock may be faster than the world's time.
FASTEST = 1 + DRIFT_PART


class Judge:
    """Everything that broke a promise is in `wrong`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wrong: list[str] = []
        self.acks: dict[tuple[PartitionId, Offset], str] = {}
        # Whatever was lost with a disk, or by an operator's word, is not asked for.
        self.harmed: dict[Slot, str] = {}
        # A disk that came back older forgot which slots had left it: with a registry that is older
        # too, nobody knows of it.
        self.a_disk_is_older = False
        # Each time that somebody accepted what the registry had lost begins another one.
        self.era = 0
        self.homes = Homes()
        # Where slots were at home that an older registry looks for elsewhere, and since when it has
        # them served there though their newest logs can be seen.
        self._forgotten: dict[Slot, str] = {}
        self._older_since_ms: dict[Slot, int] = {}
        self._acked_from: set[tuple[Slot, str]] = set()
        self.begun: set[tuple[int, str]] = set()
        self._disk_of_term: dict[tuple[int, Slot, int], str] = {}
        self._acked_slots: set[Slot] = set()
        self._made: set[tuple[Slot, str]] = set()
        self._heard: dict[PartitionId, Epoch] = {}
        self._away_from_ms: dict[Slot, int] = {}

    def breaks(self, what: str) -> None:
        if len(self.wrong) < SHOWN:
            self.wrong.append(f"{self.world.now_ms} ms: {what}")

    # --- what happens -----------------------------------------------------------------------------

    def acknowledged(
        self, by: BufferProcess, partition: PartitionId, offset: Offset, text: str
    ) -> None:
        slot, life = by.slot, by.life
        assert life is not None
        before = self.acks.setdefault((partition, offset), text)
        if before != text and slot not in self.harmed:
            self.breaks(f"offset {offset} of partition {partition} is {before} and {text}")
        term = (self.era, slot, life.tenure.term)
        disk = self._disk_of_term.setdefault(term, life.here)
        if disk != life.here and not self.a_disk_is_older and slot not in self._forgotten:
            self.breaks(f"slot {slot} serves under term {term[2]} from {disk} and {life.here}")
        self._from_forgotten(by, life.here)
        self._acked_from.add((slot, life.here))
        for other in by.machines.every:
            if other is not by and other.slot == slot and other.holds():
                self.breaks(f"slot {slot} is served by {by.name} and {other.name} at once")
        self._acked_slots.add(slot)

    def _from_forgotten(self, by: BufferProcess, disk: str) -> None:
        """An older copy may be served only while the host of the newest one is away; from then on
        there are two that differ."""
        newest = self._forgotten.get(by.slot, disk)
        if newest == disk or (by.slot, newest) not in self._acked_from:
            return
        self.harmed.setdefault(by.slot, "its home was forgotten, and an older copy served")
        if not any(n.disk.disk_id == newest and n.told for n in by.machines.here()):
            self._older_since_ms.pop(by.slot, None)
        since_ms = self._older_since_ms.setdefault(by.slot, self.world.now_ms)
        if self.world.now_ms - since_ms > NOTICED_MS and not self.a_disk_is_older:
            self.breaks(
                f"slot {by.slot} is served from {disk}, and its newest logs are on {newest}"
            )

    def forgets_homes(self, older: Homes) -> None:
        """The registry comes back as it was when it knew these homes."""
        for slot, home in self.homes.slots.items():
            if slot not in older.slots or older.slots[slot].disk != home.disk:
                self._forgotten.setdefault(slot, home.disk)

    def accepts(self) -> None:
        """Somebody accepted what the registry had lost: it goes on with what is there."""
        self.era += 1
        self._forgotten.clear()

    def made(self, slot: Slot, queue_id: str) -> None:
        """A buffer is to make the logs of a queue."""
        if slot in self._acked_slots and slot not in self.harmed:
            self.breaks(f"slot {slot} has acknowledged, and its logs are made anew ({queue_id})")

    def heard_epochs(self, epochs: Mapping[PartitionId, Epoch]) -> None:
        """A log that serves has heard that these are over."""
        for partition, epoch in epochs.items():
            self._heard[partition] = max(epoch, self._heard.get(partition, 0))

    def forgets(self, slot: Slot) -> None:
        """What a log has heard is not synced: a power cut may take it."""
        for partition in [p for p in self._heard if p % SLOTS == slot]:
            del self._heard[partition]

    def gives(self, partition: PartitionId, epoch: Epoch, slot: Slot) -> None:
        """The registry has taken an epoch that somebody is given now."""
        if epoch <= self._heard.get(partition, 0) and slot not in self.harmed:
            self.breaks(
                f"epoch {epoch} of partition {partition} is given out, and its log has heard of "
                f"{self._heard[partition]}"
            )

    def refused(self, rows: Sequence[PartitionRow]) -> list[PartitionId]:
        """The partitions whose log refuses whoever comes under the registry's epoch."""
        heard = self._heard
        return [
            r.partition
            for r in rows
            if r.epoch < heard.get(r.partition, 0) and r.partition % SLOTS not in self.harmed
        ]

    def begins(self, topology_id: str, accepted: bool) -> None:
        """A coordinator begins a registry that knew nothing."""
        if self.begun and not accepted:
            self.breaks("a registry is begun a second time")
        self.begun.add((self.era, topology_id))

    def goes_back(self) -> None:
        """A coordinator leads by a registry that has lost writes, and nobody accepted that."""
        self.breaks("a coordinator goes on by a registry that has lost accepted writes")

    def planned(self, slot: Slot, told: str, goes_to: str) -> None:
        """A move goes where its plan says, when both are made of the same."""
        if told != goes_to:
            self.breaks(f"slot {slot} is planned to go to {told}, and goes to {goes_to}")

    def home_changes(
        self,
        before: Homes,
        after: Homes,
        moving: set[Slot],
        now_ms: int,
        replace_after_ms: int | None,
    ) -> None:
        """The registry has other homes than before. What is away for so long is given up: by the
        world's time, whatever the clocks of the hosts say."""
        self.homes = after
        for slot, home in after.slots.items():
            old = before.slots.get(slot)
            from_ms = self._away_from_ms.get(slot, now_ms)
            if home.away_since_ms is None:
                self._away_from_ms.pop(slot, None)
            else:
                self._away_from_ms.setdefault(slot, now_ms)
            if old is None or old.disk == home.disk or slot in moving:
                continue
            waited_ms = now_ms - from_ms
            is_up = old.given_up or (
                replace_after_ms is not None and waited_ms * FASTEST >= replace_after_ms
            )
            if old.disk and not is_up and old.away_since_ms is not None:
                self.breaks(f"slot {slot} is given up after {waited_ms} ms")
            if not home.disk or (not old.disk and not is_up):
                continue  # its logs are looked for, or were found
            if slot not in before.behind:  # else it is at home where it was before
                self.harmed.setdefault(slot, "its disk was given up")
            if home.term <= old.term:
                self.breaks(f"slot {slot} goes to {home.disk} under term {home.term}")

    # --- at the end -------------------------------------------------------------------------------

    def at_rest(self, machines: Machines, rows: Sequence[PartitionRow]) -> None:
        """All hosts are there: everything is served, from one place, and nothing is lost."""
        if self.refused(rows):
            self.breaks(f"logs refuse their owners for good: partitions {self.refused(rows)}")
        texts: dict[tuple[PartitionId, Offset], str] = {}
        for slot, buffer in machines.buffers.items():
            if not buffer.holds():
                self.breaks(f"slot {slot} is not served: {buffer.name}")
                continue
            assert buffer.life is not None
            for partition, mine in buffer.life.texts().items():
                texts.update({(partition, offset): text for offset, text in mine.items()})
        lost = [
            f"{text} at {place}"
            for place, text in self.acks.items()
            if texts.get(place) != text and place[0] % SLOTS not in self.harmed
        ]
        if lost:
            self.breaks(f"{len(lost)} of {len(self.acks)} acknowledged are gone: {lost[:3]}")
