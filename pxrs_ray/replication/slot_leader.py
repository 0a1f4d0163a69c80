"""`SlotLeader`: everything that the leader of a slot decides about its followers. Pure, sans-io.

Rules of this file. Who runs it appends to the log, says so, carries what is said between replicas,
and takes the effects after each call; time is given in, by one monotonic clock. The high watermark
of a log is what every replica in sync has stored. While another in-sync set is asked for,
both sets are waited for: so a leader that nobody hears acknowledges nothing, and needs no clock for
that. The high watermark never goes back. Nothing is cut here: a leader's log is what is true. A
follower that lacks what was dropped here begins anew where this log can be followed from; no
replica in sync lacks that, for nothing is dropped above the high watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace

from pxrs_ray.model import Offset
from pxrs_ray.replication.catch_up_room import CatchUpRoom
from pxrs_ray.replication.leader_effects import (
    Advanced,
    AskIsr,
    HaveBegin,
    LeaderEffect,
    ReplicationSettings,
    Ship,
    SteppedDown,
    Tell,
)
from pxrs_ray.replication.led_log import LedLog, ReplicaHeard, ReplicaProgress
from pxrs_ray.replication.peer_messages import (
    Agreed,
    CutAt,
    LogKey,
    Position,
    Stored,
    Watermark,
)
from pxrs_ray.replication.placement import Disk, InSync, IsrChange, Placement


class SlotLeader:
    """The leader of a slot under one epoch. It ends when there is a higher one."""

    def __init__(
        self,
        me: Disk,
        placement: Placement,
        logs: Mapping[LogKey, LedLog],
        settings: ReplicationSettings,
        now_ms: int,
    ) -> None:
        self.placement = placement
        self.logs = dict(logs)
        self.ended = False
        self._me = me
        self._settings = settings
        self._room = CatchUpRoom(settings.catch_up_bytes_per_s)
        self._effects: deque[LeaderEffect] = deque()
        self._replicas: dict[Disk, ReplicaHeard] = {}
        # The sets that were asked for since the last change, and when to ask again. Any of them may
        # stand in the registry by now: they are forgotten when its version has moved.
        self._asked: tuple[InSync, ...] = ()
        self._ask_again_ms = now_ms
        self._began_ms = now_ms
        self._absent: frozenset[Disk] = frozenset()
        for key, log in self.logs.items():
            self._begin(key, log, now_ms)

    def _begin(self, key: LogKey, log: LedLog, now_ms: int) -> None:
        log.table.begin(self.placement.epoch, log.end)
        log.marks.clear()
        log.mark(now_ms, self._settings.lag_max_ms)
        self._advance(key)

    def opened(self, key: LogKey, log: LedLog, now_ms: int) -> None:
        """The slot has one more log."""
        self.logs[key] = log
        self._begin(key, log, now_ms)

    def closed(self, key: LogKey) -> None:
        """The slot has one log less."""
        self.logs.pop(key, None)
        for heard in self._replicas.values():
            heard.logs.pop(key, None)

    def take_effect(self) -> LeaderEffect | None:
        """What is to be done next; None when that is nothing."""
        return self._effects.popleft() if self._effects else None

    # --- its own log ------------------------------------------------------------------------------

    @property
    def takes(self) -> bool:
        """Whether enough replicas are in sync for an append to be acknowledged."""
        return not self.ended and len(self.placement.isr) >= self._settings.min_isr

    def needs(self, min_isr: int, catch_up_bytes_per_s: int) -> None:
        """From now on so many replicas must be in sync for an append to be acknowledged, and so
        much is sent at the most to those that are not."""
        self._settings = replace(self._settings, min_isr=min_isr)
        self._room.bytes_per_s = catch_up_bytes_per_s
        for key in self.logs:
            self._advance(key)

    def appended(self, key: LogKey, end: Offset, synced: Offset, now_ms: int) -> None:
        """The log has grown to `end`, or more of it is synced."""
        log = self.logs[key]
        log.end, log.synced = end, max(log.synced, synced)
        log.mark(now_ms, self._settings.lag_max_ms)
        self._advance(key)
        for disk, heard in self._replicas.items():
            self._ship(disk, heard, key, now_ms)

    def shortened(self, key: LogKey, first: Offset, start: Offset) -> None:
        """What is before `start` was dropped; it can be followed from `first` on."""
        log = self.logs[key]
        if first > log.first:
            log.table.forget_before(first)
        log.first, log.start = first, start

    # --- followers --------------------------------------------------------------------------------

    def heard(self, said: Position | Stored, now_ms: int) -> None:
        """A follower says something. Of another epoch it says nothing to us."""
        who = said.follower
        if self.ended or said.epoch != self.placement.epoch or who.disk == self._me:
            return
        if said.key not in self.logs or who.disk not in self.placement.replicas:
            return
        known = self._replicas.get(who.disk)
        if known is not None and who.life < known.who.life:
            return  # it is late, and its process is gone
        if known is None or known.who != who:
            # What an earlier life has stored may be gone.
            known = self._replicas[who.disk] = ReplicaHeard(who)
        progress = known.logs.setdefault(said.key, ReplicaProgress())
        if isinstance(said, Position):
            if said.number < progress.number:
                return  # it has heard the answer to that, and gone on
            self._answer(said, progress)
        elif not progress.agreed or said.number != progress.number:
            return
        else:
            # One that has stored nothing more lacks what was lost on the way: it waits for that.
            if said.end > progress.end:
                progress.end = said.end
                progress.again_ms = now_ms + self._settings.again_ms
            progress.synced = max(progress.synced, said.synced)
            progress.heard = max(progress.heard, (said.high_watermark, said.start))
            progress.ships = max(0, progress.ships - 1)
            progress.sent = max(progress.sent, progress.end)
        self._advance(said.key)
        self._ship(who.disk, known, said.key, now_ms)
        self._look_at_isr(now_ms)

    def _answer(self, asked: Position, progress: ReplicaProgress) -> None:
        """Find where the logs part, and say so."""
        log, to = self.logs[asked.key], asked.follower.disk
        epoch, end = log.table.end_of(asked.last_epoch, log.end)
        at = min(end, asked.end)
        names = (asked.epoch, asked.key, asked.follower.life, asked.number)
        if asked.number == progress.number and (progress.agreed or progress.left_behind):
            # It has not heard it yet; or it has, and this was late.
            told = Tell(to, Agreed(*names)) if progress.agreed else HaveBegin(to, *names[1:])
            self._effects.append(told)
            return
        progress.number, progress.left_behind = asked.number, False
        progress.agreed = False
        agree = epoch == asked.last_epoch and asked.end <= end
        # Of what both have nothing is left here, or there.
        none_left = at < asked.first or 0 < at <= log.first
        if asked.end < log.first or (none_left and not agree):
            self._effects.append(HaveBegin(to, *names[1:]))
        elif agree:
            progress.agreed, progress.ships = True, 0
            progress.heard = progress.told = (0, 0)
            progress.end = progress.sent = asked.end
            progress.synced = asked.synced
            self._effects.append(Tell(to, Agreed(*names)))
        else:
            self._effects.append(Tell(to, CutAt(*names, epoch, at)))

    def leave_behind(self, disk: Disk, key: LogKey, now_ms: int) -> None:
        """What comes next for a follower is not here any more: have it begin anew, until it asks
        where."""
        heard = self._replicas[disk]
        progress = heard.logs[key]
        progress.agreed, progress.left_behind = False, True
        progress.again_ms = now_ms + self._settings.again_ms
        self._effects.append(HaveBegin(disk, key, heard.who.life, progress.number))

    def _ship(self, disk: Disk, heard: ReplicaHeard, key: LogKey, now_ms: int) -> None:
        progress = heard.logs.get(key)
        if progress is None or not progress.agreed or self.ended:
            return
        if progress.sent < self.logs[key].first:
            self.leave_behind(disk, key, now_ms)
            return
        if progress.sent < self.logs[key].end:
            if progress.sent == progress.end:
                progress.again_ms = now_ms + self._settings.again_ms
            may_ship = self._room.is_there(now_ms) or self._is_waited_for(disk)
            if progress.ships < self._settings.ships_max and may_ship:
                progress.ships += 1
                self._effects.append(Ship(disk, key, progress.sent))

    def shipped(self, ship: Ship, end: Offset, now_ms: int, size_bytes: int = 0) -> None:
        """What a `Ship` wanted is on its way, up to `end`, in so many bytes."""
        if self._room.bytes_per_s and not self._is_waited_for(ship.to):
            self._room.take(size_bytes, now_ms)
        heard = self._replicas.get(ship.to)
        progress = heard.logs.get(ship.key) if heard is not None else None
        if heard is not None and progress is not None and progress.sent == ship.first:
            progress.sent = end
            self._ship(ship.to, heard, ship.key, now_ms)

    # --- the high watermark -----------------------------------------------------------------------

    def _waited_for(self) -> tuple[InSync, ...]:
        """The replicas in sync, and those that may be by now."""
        return (*self.placement.isr, *self._asked)

    def _is_waited_for(self, disk: Disk) -> bool:
        return any(member.disk == disk for member in self._waited_for())

    def _stored(self, member: InSync, key: LogKey) -> Offset:
        """Up to where a replica is known to have a log."""
        if member.disk == self._me:
            log = self.logs[key]
            return log.synced if self._settings.synced_only else log.end
        heard = self._replicas.get(member.disk)
        progress = heard.logs.get(key) if heard is not None else None
        if progress is None or not progress.agreed:
            return 0
        return progress.synced if self._settings.synced_only else progress.end

    def _advance(self, key: LogKey) -> None:
        log = self.logs[key]
        if not self.takes:
            return
        to = min(self._stored(member, key) for member in self._waited_for())
        if to > log.high_watermark:
            log.high_watermark = to
            self._effects.append(Advanced(key, to))

    @property
    def is_asking(self) -> bool:
        """Whether another in-sync set may stand in the registry than the one that is known here."""
        return bool(self._asked)

    # --- the in-sync set --------------------------------------------------------------------------

    def placed(self, placement: Placement, now_ms: int) -> None:
        """The coordinator says what stands in the registry now."""
        if self.ended or placement.version < self.placement.version:
            return
        if placement.epoch != self.placement.epoch or placement.leader != self._me:
            self.ended = True
            self._effects.append(SteppedDown())
            return
        if placement.version > self.placement.version:
            self.placement = placement
            self._asked = ()
            for disk in set(self._replicas) - set(placement.replicas):
                del self._replicas[disk]
            for key in self.logs:
                self._advance(key)
        self._look_at_isr(now_ms)

    def absent(self, disks: Collection[Disk], now_ms: int) -> None:
        """The coordinator sees no process of these, and one of all others."""
        self._absent = frozenset(disks)
        if not self.ended:
            self._look_at_isr(now_ms)

    def tick(self, now_ms: int) -> None:
        """Look at the time: who is late, what was not answered, who has not heard how far it is."""
        if self.ended:
            return
        for disk, heard in self._replicas.items():
            for key, progress in heard.logs.items():
                self._look_at(disk, heard, key, progress, now_ms)
        self._look_at_isr(now_ms)

    def _look_at(
        self,
        disk: Disk,
        heard: ReplicaHeard,
        key: LogKey,
        progress: ReplicaProgress,
        now_ms: int,
    ) -> None:
        if progress.left_behind and now_ms >= progress.again_ms:
            self.leave_behind(disk, key, now_ms)
        if not progress.agreed:
            return
        # Whatever was lost on the way: what is not stored is sent again.
        if progress.sent > progress.end and now_ms >= progress.again_ms:
            progress.sent, progress.ships = progress.end, 0
        # There may be room for it now.
        self._ship(disk, heard, key, now_ms)
        log = self.logs[key]
        to_tell = (log.high_watermark, log.start)
        again = progress.told != to_tell or now_ms >= progress.again_ms
        # Each of these is answered: what a follower said last, and was lost, is said again by that.
        unsure = progress.heard != to_tell or progress.synced < progress.end
        if unsure and again and progress.sent == progress.end:
            progress.told, progress.again_ms = to_tell, now_ms + self._settings.again_ms
            self._effects.append(Tell(disk, Watermark(self.placement.epoch, key, *to_tell)))

    def _look_at_isr(self, now_ms: int) -> None:
        """Ask for the in-sync set that should be, unless that is under way."""
        wanted = [one for one in self.placement.isr if not self._is_late(one, now_ms)]
        for heard in self._replicas.values():
            member = InSync(heard.who.disk, heard.who.boot)
            is_new = member not in self.placement.isr and member.disk not in self._absent
            if is_new and self._has_caught_up(member, heard):
                wanted = [one for one in wanted if one.disk != member.disk]
                wanted.append(member)
        changes = set(wanted) != set(self.placement.isr)
        # What was asked for and not answered may yet be done: until the version moves, it counts.
        if changes if not self._asked else now_ms >= self._ask_again_ms:
            self._asked = tuple({*self._asked, *wanted})
            self._ask_again_ms = now_ms + self._settings.again_ms
            new = [one.disk for one in wanted if one not in self.placement.isr]
            lives = tuple((disk, self._replicas[disk].who.life) for disk in new)
            names = self.placement.epoch, self.placement.version
            change = IsrChange(*names, tuple(wanted), lives)
            self._effects.append(AskIsr(change))

    def _is_late(self, member: InSync, now_ms: int) -> bool:
        """Whether a replica in sync lacks what the log has had for too long."""
        lag_max_ms = self._settings.lag_max_ms
        if member.disk == self._me:
            return False
        heard = self._replicas.get(member.disk)
        if member.disk in self._absent or (heard is not None and heard.who.boot != member.boot):
            return True
        if now_ms - self._began_ms <= lag_max_ms:
            return False
        # Who was never heard lacks all that there is: nothing, without logs.
        return any(
            self._stored(member, key) < log.due(now_ms, lag_max_ms)
            for key, log in self.logs.items()
        )

    def _has_caught_up(self, member: InSync, heard: ReplicaHeard) -> bool:
        """Whether a follower has all that is, or may be, acknowledged: what is below the high
        watermark, and what the log had when this epoch began."""
        for key, log in self.logs.items():
            progress = heard.logs.get(key)
            begun = log.table.end_of(self.placement.epoch - 1, log.end)[1]
            if progress is None or not progress.agreed:
                return False
            if self._stored(member, key) < max(log.high_watermark, begun):
                return False
        return True
