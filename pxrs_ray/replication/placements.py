"""`Placements`: the placement of every slot, as it stands in the registry; and `SlotPlacements`:
what a coordinator does about it. Pure, sans-io.

    table.heard(slot, disk, asked_ms, seen, now_ms)    # a replica's process has answered
    table.isr_asked(slot, change, now_ms)              # a leader asks for another in-sync set
    while (effect := table.take_effect()) is not None: ...

Rules of this file. All of it is one document, written under the coordinator's generation: whoever
was replaced changes nothing. One write at a time, made of what stands by then: changes that come
meanwhile go into the next one. What is written is durable before any replica hears of it. What a
replica answered counts from when it was asked. Who began a moment ago has heard of nobody yet: it
elects nobody, and calls nobody absent, until all that live could have answered, or all have. Where
a leader is missed, its replicas are asked once more: with one that answers that, the same write
says who leads and who is in sync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace

from pxrs_ray.codec import check_form, json_codec
from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Slot
from pxrs_ray.replication.own_lag import OwnLag
from pxrs_ray.replication.placement import (
    Disk,
    IsrChange,
    Placement,
    ReplicaSeen,
    accept_loss,
    change_isr,
    elect,
    first_placement,
    hand_over,
    waits_for,
    with_replicas,
)

DOCUMENT = "placements"
FORM = 1


@dataclass(frozen=True, slots=True)
class Placements:
    """The document. What a newer version of the code wrote has a higher `form`. `away_ms`: for how
    long disks that are away have been so, as far as coordinators have counted."""

    form: int = FORM
    slots: dict[Slot, Placement] = field(default_factory=dict)
    away_ms: dict[Disk, int] = field(default_factory=dict)


PLACEMENTS = json_codec("registry: placements", Placements)


def placements_from(text: str) -> Placements:
    """What a document says; '' is a topology without replicas. Raises StoreSchemaError."""
    if not text:
        return Placements()
    found: Placements = PLACEMENTS.decode_text(text)
    check_form(DOCUMENT, found.form, FORM)
    return found


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """A replica is living that has answered a question of the last `heard_ms`, or of as much longer
    as its coordinator, which is told the time `every_ms`, was late itself. Who may lead next has
    `answer_ms` to answer that it lives. `synced_only`: see `placement.elect`."""

    heard_ms: int
    synced_only: bool = False
    answer_ms: int = 100
    every_ms: int = 50


@dataclass(frozen=True, slots=True)
class KeepPlacements:
    """Have this durable, under the generation of this coordinator; then say so with `kept`."""

    placements: Placements


@dataclass(frozen=True, slots=True)
class TellReplicas:
    """This stands in the registry: tell every replica of the slot."""

    slot: Slot
    placement: Placement


@dataclass(frozen=True, slots=True)
class AskReplicas:
    """The leader of this slot is missed: look at every replica of it now."""

    slot: Slot


@dataclass(slots=True)
class _Missed:
    """Since when a leader has been missed, and the processes that have answered what they were
    asked since then: which of each disk's."""

    since_ms: int
    answered: dict[Disk, int] = field(default_factory=dict)


PlacementEffect = KeepPlacements | TellReplicas | AskReplicas
Living = Mapping[Disk, ReplicaSeen]
PlacementChange = Callable[[Placement | None, Living], Placement | None]


class SlotPlacements:
    """See the rules at the head of this file. `ended` once another coordinator leads."""

    def __init__(self, found: Placements, rules: PlacementRules, now_ms: int) -> None:
        self.placements = found
        self.ended = False
        self._rules = rules
        self._began_ms = now_ms
        self._lag = OwnLag(rules.every_ms, rules.heard_ms)
        self._seen: dict[tuple[Slot, Disk], tuple[int, ReplicaSeen]] = {}
        self._dismissed_ms: dict[tuple[Slot, Disk], int] = {}
        # The slots that have no leader that lives, and could have another one.
        self._missed: dict[Slot, _Missed] = {}
        # The newest of a kind counts: who is not answered in time says it again.
        self._wanted: dict[tuple[Slot, str], PlacementChange] = {}
        self._away_ms = dict(found.away_ms)
        self._writing: Placements | None = None
        self._effects: deque[PlacementEffect] = deque()

    def take_effect(self) -> PlacementEffect | None:
        """What is to be done next; None when that is nothing."""
        return self._effects.popleft() if self._effects else None

    # --- who lives --------------------------------------------------------------------------------

    def heard(self, slot: Slot, disk: Disk, asked_ms: int, seen: ReplicaSeen, now_ms: int) -> None:
        """The process of a slot on this disk has answered what it was asked then.

        A later process there is not forgotten for what an earlier one has answered.
        """
        known = self._seen.get((slot, disk))
        if asked_ms <= self._dismissed_ms.get((slot, disk), -1):
            return
        if known is None or known[0] <= asked_ms:
            self._seen[slot, disk] = asked_ms, seen
            missed = self._missed.get(slot)
            if missed is not None and asked_ms >= missed.since_ms:
                missed.answered[disk] = seen.life
            self.look(now_ms)

    def died(self, slot: Slot, disk: Disk, life: int, now_ms: int) -> None:
        """Ray, or a closed connection, says that this process is no more."""
        known = self._seen.get((slot, disk))
        if known is not None and known[1].life == life:
            del self._seen[slot, disk]
            self.look(now_ms)

    def dismissed(self, slot: Slot, disk: Disk, now_ms: int) -> None:
        """The process of a disk that is no replica is told so: what it answers to an earlier look
        does not count. It may have dropped its logs since."""
        self._seen.pop((slot, disk), None)
        self._dismissed_ms[slot, disk] = now_ms

    def living(self, slot: Slot, now_ms: int) -> dict[Disk, ReplicaSeen]:
        """The replicas of a slot that were heard of lately."""
        since_ms = now_ms - self._rules.heard_ms - self._lag.grace_ms(now_ms)
        return {
            disk: seen
            for (of, disk), (at_ms, seen) in self._seen.items()
            if of == slot and at_ms >= since_ms
        }

    def _has_heard(self, slot: Slot, placement: Placement, now_ms: int) -> bool:
        """Whether every replica that lives could have answered; or all of them have."""
        late = now_ms - self._began_ms > self._rules.heard_ms
        return late or self.living(slot, now_ms).keys() >= set(placement.replicas)

    def absent(self, slot: Slot, now_ms: int) -> frozenset[Disk] | None:
        """The replicas of a slot that are away, or lack a log; None while that is not known."""
        placement = self.placements.slots.get(slot)
        if placement is None or not self._has_heard(slot, placement, now_ms):
            return None
        living = self.living(slot, now_ms)
        return frozenset(placement.replicas) - {d for d, seen in living.items() if seen.whole}

    def waits(self, slot: Slot, now_ms: int) -> dict[Disk, str]:
        """Why nobody may lead a slot, by the disks in sync; empty while somebody does, or could."""
        placement, living = self.placements.slots.get(slot), self.living(slot, now_ms)
        if placement is None:
            return {}
        return waits_for(placement, living, self._rules.synced_only)

    def followers(self, slot: Slot) -> dict[Disk, bool] | None:
        """Who leads nothing of a slot, and whether it may lead next: what is made must be on such
        ones, and nobody waits for others. None while the slot is not placed."""
        placement = self.placements.slots.get(slot)
        if placement is None:
            return None
        followers = (disk for disk in placement.replicas if disk != placement.leader)
        return {disk: placement.in_sync(disk) is not None for disk in followers}

    def heir(self, slot: Slot, now_ms: int) -> Disk:
        """Whose logs a slot goes on with where its loss is accepted: one that is in sync first.

        Raises UsageError where there is no loss to be accepted, or no replica that lives.
        """
        placement = self.placements.slots.get(slot)
        if placement is None or not self.waits(slot, now_ms):
            raise UsageError(f"buffer {slot} has a leader, and nothing of it is to be given up")
        living = self.living(slot, now_ms)
        able = [disk for disk in placement.replicas if disk in living]
        able.sort(key=lambda disk: placement.in_sync(disk) is None)
        if not able:
            raise UsageError(f"no replica of buffer {slot} lives: bring one of its hosts back")
        return able[0]

    def tick(self, now_ms: int) -> None:
        """Time has passed: to be told every `every_ms`."""
        self._lag.ticked(now_ms)
        self.look(now_ms)

    # --- what is to change ------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Elect leaders where one is missing, as far as that can be done, and do what waits."""
        if self.ended:
            return
        self._note_missed(now_ms)
        if self._writing is not None:
            return
        slots = dict(self.placements.slots)
        wanted, self._wanted = self._wanted, {}
        for (slot, _), change in wanted.items():
            made = change(slots.get(slot), self.living(slot, now_ms))
            if made is not None:
                slots[slot] = made
        for slot, missed in list(self._missed.items()):
            elected = self._elected(slot, slots[slot], missed, now_ms)
            if elected is not None:
                slots[slot] = elected
                # Whoever leads by this may be missed in its turn.
                del self._missed[slot]
        wanted_all = replace(self.placements, slots=slots, away_ms=self._away_ms)
        if wanted_all != self.placements:
            self._writing = wanted_all
            self._effects.append(KeepPlacements(self._writing))

    def _note_missed(self, now_ms: int) -> None:
        """See which slots have no leader that lives, and have those asked who may lead next."""
        changing = self._changing()
        for slot, placement in self.placements.slots.items():
            if slot in changing or not self._has_heard(slot, placement, now_ms):
                continue
            if elect(placement, self.living(slot, now_ms), self._rules.synced_only) is None:
                self._missed.pop(slot, None)
            elif slot not in self._missed:
                self._missed[slot] = _Missed(now_ms)
                self._effects.append(AskReplicas(slot))

    def _elected(
        self, slot: Slot, placement: Placement, missed: _Missed, now_ms: int
    ) -> Placement | None:
        """Who leads from now on a slot whose leader is missed; None where that is not known yet."""
        living = self.living(slot, now_ms)
        answered = {
            d for d, life in missed.answered.items() if d in living and living[d].life == life
        }
        found = elect(placement, living, self._rules.synced_only, answered)
        if found is None or found.leader in answered:
            return found
        return found if now_ms - missed.since_ms >= self._rules.answer_ms else None

    def begin(self, slot: Slot, replicas: tuple[Disk, ...], now_ms: int) -> None:
        """Place the logs of a slot that are about to be made; one that is placed stays as it is.

        Raises UsageError while not every replica is seen: all of them begin in sync.
        """
        away = [disk for disk in replicas if disk not in self.living(slot, now_ms)]
        if away:
            raise UsageError(f"slot {slot} cannot begin while {', '.join(away)} is not there")
        self._wanted[slot, "begin"] = lambda now, seen: now or _first(replicas, seen)
        self.look(now_ms)

    def isr_asked(self, slot: Slot, change: IsrChange, now_ms: int) -> None:
        """A leader asks for another in-sync set: what stands after that is told."""
        self._wanted[slot, "isr"] = lambda now, seen: now and change_isr(now, change, seen)
        self.look(now_ms)
        if slot not in self._changing() and slot in self.placements.slots:
            self._effects.append(TellReplicas(slot, self.placements.slots[slot]))

    def hand_over(self, slot: Slot, disk: Disk, now_ms: int) -> None:
        """Have this replica lead, though another may live that does; nothing, where it must not."""
        synced_only = self._rules.synced_only
        self._wanted[slot, "leader"] = lambda now, seen: (
            now and hand_over(now, disk, seen, synced_only)
        )
        self.look(now_ms)

    def change_disks(
        self, slot: Slot, version: int, replicas: tuple[Disk, ...], now_ms: int
    ) -> None:
        """Have a slot on these disks instead of those of that `version`. One that is new has to
        catch up.

        Nothing is done where the placement has changed since, where its leader, or all that is in
        sync, would go; to be said again until it is done.
        """
        self._wanted[slot, "disks"] = lambda now, _: now and _on_disks(now, version, replicas)
        self.look(now_ms)

    def note_away(self, away_ms: Mapping[Disk, int], now_ms: int) -> None:
        """Have it durable for how long disks have been away, by what was counted."""
        self._away_ms = dict(away_ms)
        self.look(now_ms)

    def accept_loss(self, slot: Slot, disk: Disk, now_ms: int) -> None:
        """An operator chooses who leads, whatever that one has lost. Raises UsageError where that
        disk is no living replica of the slot."""
        placement, living = self.placements.slots.get(slot), self.living(slot, now_ms)
        if placement is None or disk not in placement.replicas or disk not in living:
            raise UsageError(f"slot {slot} has no living replica on disk {disk}")
        self._wanted[slot, "loss"] = lambda now, _: now and accept_loss(now, disk, living[disk])
        self.look(now_ms)

    # --- what stands ------------------------------------------------------------------------------

    def _changing(self) -> set[Slot]:
        if self._writing is None:
            return set()
        was = self.placements.slots
        return {slot for slot, made in self._writing.slots.items() if was.get(slot) != made}

    def kept(self, done: bool, now_ms: int) -> None:
        """What was to be kept is durable; or not, for another coordinator leads."""
        assert self._writing is not None
        if not done:
            self.ended = True
            self._writing = None
            self._effects.clear()
            return
        changed = self._changing()
        self.placements, self._writing = self._writing, None
        for slot in sorted(changed):
            self._effects.append(TellReplicas(slot, self.placements.slots[slot]))
        self.look(now_ms)


def _first(replicas: tuple[Disk, ...], seen: Living) -> Placement | None:
    return first_placement(replicas, seen) if all(disk in seen for disk in replicas) else None


def _on_disks(placement: Placement, version: int, replicas: tuple[Disk, ...]) -> Placement | None:
    if placement.version != version or len(set(replicas)) < len(replicas):
        return None
    try:
        return with_replicas(placement, replicas)
    except UsageError:
        return None
