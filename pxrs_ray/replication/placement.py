"""`Placement`: which replica of a slot leads, under which epoch, and which are in sync. Pure.

Rules of this file. A replica is a disk: one that was emptied is another one. Only the coordinator
changes a placement, and the change is durable in the registry, conditional on its version, before
anybody acts on it. A leader is elected from the in-sync set alone, in the life of its machine in
which it was found in sync: after a power cut it may have lost what was never synced, and has to
catch up first. Where nobody may be elected the slot waits; only an operator gives up what is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass

Disk = str
LeaderEpoch = int


@dataclass(frozen=True, slots=True)
class InSync:
    """A replica that has everything below the high watermark, and the start of its machine (`boot`)
    in which that was so."""

    disk: Disk
    boot: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the logs of one slot are.

    `life` is the process that leads, as its disk counts them: a later one of the same disk leads
    under a higher epoch.
    `version` rises with every change.
    """

    replicas: tuple[Disk, ...]
    isr: tuple[InSync, ...]
    leader: Disk = ""
    life: int = 0
    epoch: LeaderEpoch = 0
    version: int = 0

    def in_sync(self, disk: Disk) -> InSync | None:
        """The entry of a disk in the in-sync set."""
        return next((member for member in self.isr if member.disk == disk), None)


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """A living replica: its process, as its disk counts them; the start of its machine; whether its
    logs are whole."""

    life: int
    boot: str
    whole: bool = True


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What a leader asks for: this in-sync set instead of the one of `version`. `lives` are the
    processes that it has seen catch up, of those that are new, as their disks count them."""

    epoch: LeaderEpoch
    version: int
    isr: tuple[InSync, ...]
    lives: tuple[tuple[Disk, int], ...] = ()


def first_placement(replicas: tuple[Disk, ...], seen: Mapping[Disk, ReplicaSeen]) -> Placement:
    """The placement of new logs, which have nothing yet: all of them are in sync.

    Every replica has to be seen: one that is away would have to be waited for.
    """
    isr = tuple(InSync(disk, seen[disk].boot) for disk in replicas)
    return Placement(replicas, isr, replicas[0], seen[replicas[0]].life, epoch=1, version=1)


def elect(
    placement: Placement,
    seen: Mapping[Disk, ReplicaSeen],
    synced_only: bool,
    answered: Collection[Disk] = (),
) -> Placement | None:
    """The placement under a leader that lives; None where nothing is to be done, or can be.

    `synced_only`: what was acknowledged is synced on every replica in sync, so that a power cut
    takes nothing of it. Of those that have `answered` since the leader was missed one is elected
    before any other, and whoever could not lead leaves the in-sync set by that. Who has not may be
    gone by now, and take with it what the others have: nobody leaves the set for such a one.
    """
    leads = seen.get(placement.leader)
    if leads is not None and leads.life == placement.life and leads.whole:
        return None
    able = [member for member in placement.isr if _may_lead(member, seen, synced_only)]
    if not able:
        return None
    # Whoever led last may have begun to lead in a process that is gone: any other is as good.
    chosen = min(able, key=lambda m: (m.disk not in answered, m.disk == placement.leader))
    led = _led_by(chosen, placement, seen, able)
    if chosen.disk not in answered:
        return led
    return replace(led, isr=tuple(m for m in led.isr if m.disk in {each.disk for each in able}))


def _led_by(
    chosen: InSync,
    placement: Placement,
    seen: Mapping[Disk, ReplicaSeen],
    able: Collection[InSync],
) -> Placement:
    return replace(
        placement,
        isr=tuple(InSync(m.disk, seen[m.disk].boot) if m in able else m for m in placement.isr),
        leader=chosen.disk,
        life=seen[chosen.disk].life,
        epoch=placement.epoch + 1,
        version=placement.version + 1,
    )


def hand_over(
    placement: Placement, disk: Disk, seen: Mapping[Disk, ReplicaSeen], synced_only: bool
) -> Placement | None:
    """The placement under this disk, though another one may lead that lives; None where it must
    not, or leads already.

    Whoever led acknowledges nothing from then on, whether it hears of it or not: for that, all in
    sync would have to take what it sends, and one of them goes by a higher epoch.
    """
    member = placement.in_sync(disk)
    if member is None or disk == placement.leader or not _may_lead(member, seen, synced_only):
        return None
    able = [each for each in placement.isr if _may_lead(each, seen, synced_only)]
    return _led_by(member, placement, seen, able)


def _may_lead(member: InSync, seen: Mapping[Disk, ReplicaSeen], synced_only: bool) -> bool:
    found = seen.get(member.disk)
    return found is not None and found.whole and (synced_only or found.boot == member.boot)


def waits_for(
    placement: Placement, seen: Mapping[Disk, ReplicaSeen], synced_only: bool
) -> dict[Disk, str]:
    """Why no replica in sync may lead; empty while one does, or could."""
    leads = seen.get(placement.leader)
    if leads is not None and leads.life == placement.life and leads.whole:
        return {}
    told = {}
    for member in placement.isr:
        found = seen.get(member.disk)
        if _may_lead(member, seen, synced_only):
            return {}
        if found is None:
            told[member.disk] = "is away"
        elif not found.whole:
            told[member.disk] = "is damaged"
        else:
            told[member.disk] = "may have lost what was not synced: its machine was started again"
    return told


def change_isr(
    placement: Placement, asked: IsrChange, seen: Mapping[Disk, ReplicaSeen]
) -> Placement | None:
    """The placement with another in-sync set; None: refused, for what the leader knew is over.

    A disk that is let in must live in the very process, and boot, that the leader has seen catch
    up: the question may be older than that process, which may have lost a log since (KIP-903).
    """
    if (asked.epoch, asked.version) != (placement.epoch, placement.version):
        return None
    disks = [member.disk for member in asked.isr]
    if placement.leader not in disks or not set(disks) <= set(placement.replicas):
        return None
    lives = dict(asked.lives)
    for member in asked.isr:
        if member in placement.isr:
            continue
        found = seen.get(member.disk)
        if found is None or found.boot != member.boot or not found.whole:
            return None
        if found.life != lives.get(member.disk):
            return None
    return replace(placement, isr=asked.isr, version=placement.version + 1)


def accept_loss(placement: Placement, disk: Disk, seen: ReplicaSeen) -> Placement:
    """The placement under a replica that an operator has chosen, whatever it has lost."""
    return replace(
        placement,
        isr=(InSync(disk, seen.boot),),
        leader=disk,
        life=seen.life,
        epoch=placement.epoch + 1,
        version=placement.version + 1,
    )


def with_replicas(placement: Placement, replicas: tuple[Disk, ...]) -> Placement:
    """The placement on other disks; one that is new has to catch up, however often it was here.

    The leader stays: a slot that is to leave its leader's disk elects another one first. Raises
    UsageError where no replica in sync would be left.
    """
    isr = tuple(member for member in placement.isr if member.disk in replicas)
    if not isr or (placement.leader and placement.leader not in replicas):
        raise UsageError("its leader has all of the slot's messages: have another one lead first")
    return replace(placement, replicas=replicas, isr=isr, version=placement.version + 1)
