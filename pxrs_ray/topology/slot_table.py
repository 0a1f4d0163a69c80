"""`SlotTable`: which buffer serves each slot, which slots have none, and who is to be opened. Pure:
the caller passes the time.

Rules of this file. A buffer is known once it has answered in its present life, and is opened once
in each. What fails while it is opened has it opened anew. A slot that waits for its host, or that
moves, is granted nothing. A process is granted a lease only after its logs were found to be ours;
one whose logs were made under another registry serves nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pxrs_ray.data.protocol import BufferGrant, BufferInfo
from pxrs_ray.log.identity import Identity
from pxrs_ray.log.lease_grants import LeaseGrants
from pxrs_ray.model import Generation, Slot
from pxrs_ray.topology.homes import Home, SlotSeen


class SlotTable:
    """The slots of one coordinator. What serves a slot is its handle, whatever that is."""

    def __init__(self, count: int, lease_ms: int, now_ms: int) -> None:
        self.count = count
        self.terms = [1] * count
        self.disk_ids = [""] * count
        self._moves = [0] * count
        self.grants = LeaseGrants(count, lease_ms, now_ms)
        self._handles: dict[Slot, Any] = {}
        self._waits: dict[Slot, str] = {}
        self._away: dict[Slot, str] = {}
        self._elsewhere: dict[Slot, str] = {}
        self._incarnations: dict[Slot, str] = {}
        self._nodes: dict[Slot, str] = {}
        self._answered: set[Slot] = set()
        self._foreign: set[Slot] = set()
        self._later_on: dict[Slot, str] = {}
        self._claimed: set[Slot] = set()
        self._unopened: dict[tuple[Slot, str], str] = {}
        self._led_by: dict[Slot, Generation] = {}
        self._serves_under: dict[Slot, int] = {}
        self._held: set[Slot] = set()

    # --- which buffer serves a slot ---------------------------------------------------------------

    def begins_at(self, index: Slot, home: Home) -> bool:
        """A buffer is being started at this home: nobody else is granted anything from now on.

        Answers whether it is to be started anew though one runs there: that one was made for
        another disk, or has not found its own.
        """
        self.grants.forbid(index)
        self._claimed.discard(index)
        anew = index in self._elsewhere or self.disk_ids[index] not in ("", home.disk)
        self.terms[index], self.disk_ids[index] = home.term, home.disk
        self._moves[index] = home.moves
        return anew

    def placed(self, index: Slot, home: Home, handle: Any) -> None:
        """It was started, and is looked at from now on."""
        self._handles[index], self._nodes[index] = handle, home.node
        self._waits.pop(index, None)
        self._elsewhere.pop(index, None)
        self._incarnations.pop(index, None)
        self._held.discard(index)

    def held(self, index: Slot) -> None:
        """It is to stop: look at it no more, and grant it nothing. Until it is placed anew, or
        released."""
        self.grants.forbid(index)
        self._held.add(index)
        self._incarnations.pop(index, None)

    def forget_actor(self, index: Slot) -> None:
        """It has stopped for good: another one is to be placed."""
        self._handles.pop(index, None)
        self._incarnations.pop(index, None)
        self._answered.discard(index)

    def released(self, index: Slot) -> None:
        """It goes on: one that had closed its logs begins anew by the next look."""
        self._held.discard(index)

    def waits_for(self, waits: Mapping[Slot, str]) -> list[Slot]:
        """These slots have no host now, each for the given reason; answers those that are new."""
        new = [index for index in waits if index not in self._waits]
        for index in waits:
            self.forget_actor(index)
            self._away.pop(index, None)
        self._waits = dict(waits)
        return new

    def is_looked_at(self, index: Slot) -> bool:
        """Whether somebody is there to be looked at."""
        return index in self._handles and index not in self._held

    # --- what it answers --------------------------------------------------------------------------

    def grant_of(self, index: Slot) -> BufferGrant:
        """What the next look carries."""
        return self.grants.grant(index, self.terms[index])

    def heard(self, index: Slot, info: BufferInfo, now_ms: int) -> None:
        """Take in what a buffer answers to a look."""
        self.grants.heard(index, info.incarnation, info.monotonic_ms, now_ms)
        self._elsewhere.pop(index, None)
        self._answered.add(index)
        self._led_by[index], self._serves_under[index] = info.generation, info.term
        if info.problem:
            self._elsewhere[index] = info.problem

    def is_back(self, index: Slot) -> None:
        """It has answered a look of the watch."""
        self._away.pop(index, None)

    def to_be_opened(self, index: Slot, info: BufferInfo) -> bool:
        """Whether its queues are to be opened now: it began anew, and has its disk.

        It counts as met from here on, for whatever fails meanwhile has it looked at anew.
        """
        if info.problem or info.incarnation == self._incarnations.get(index):
            return False
        self._incarnations[index] = info.incarnation
        return True

    def met_at_start(self, index: Slot, info: BufferInfo) -> None:
        """It answers a coordinator that starts, which opens all queues afterwards."""
        if not info.problem:
            self._incarnations[index] = info.incarnation

    def look_anew(self, index: Slot) -> None:
        """Something failed there: all its queues are opened when it answers again."""
        self._incarnations.pop(index, None)

    def look_failed(self, index: Slot, why: str, *, is_gone: bool) -> None:
        """It does not answer. Who is gone for good is made anew, where its disk is."""
        self._answered.discard(index)
        if is_gone:
            self.forget_actor(index)
        if index not in self._waits:
            self._away[index] = why
        if any(at == index for at, _ in self._unopened):
            self._away.pop(index, None)

    def not_open(self, index: Slot, queue: str, why: str) -> None:
        """A queue could not be opened there: it is looked at anew, and all are opened then."""
        self.look_anew(index)
        self._unopened[index, queue] = why

    def is_open(self, index: Slot, queue: str) -> None:
        """A queue was opened there."""
        self._unopened.pop((index, queue), None)

    def not_wanted(self, queue: str) -> None:
        """A queue is gone: nobody opens it any more."""
        self._unopened = {at: why for at, why in self._unopened.items() if at[1] != queue}

    def claim_at(self, index: Slot, claim: Identity) -> Identity:
        """What this coordinator claims the logs of a slot by."""
        term, moves, disk = self.terms[index], self._moves[index], self.disk_ids[index]
        return replace(claim, term=term, moves=moves, disk=disk)

    def belongs(self, index: Slot, known: Identity, claim: Identity, *, adopt: bool) -> bool:
        """Whether the process that was heard last may serve: `known` is what its folder had noted.

        With `adopt` it may, whatever that is: it is ours from now on.
        """
        self._foreign.discard(index)
        if self.is_against(index, known, claim) and not adopt:
            self._foreign.add(index)
            self._claimed.discard(index)
            self.grants.forbid(index)
            return False
        self._claimed.add(index)
        self.grants.allow(index)
        return True

    def is_against(self, index: Slot, known: Identity, claim: Identity) -> bool:
        """Whether what is known of a slot speaks against who claims it: what its folder had noted,
        or a grant of a later coordinator, or of a later home, that its process goes by."""
        claim = self.claim_at(index, claim)
        granted = self._led_by.get(index, 0), self._serves_under.get(index, 0)
        return (
            index in self._later_on
            or known.topology_id != claim.topology_id
            or claim.is_behind(known)
            or granted > (claim.generation, claim.term)
        )

    def was_elsewhere(self, index: Slot, host: str) -> None:
        """A disk of this host tells of a later home of a slot than the registry knows: nobody
        serves it until a coordinator goes on with that."""
        self._later_on[index] = host
        self._foreign.add(index)
        self._claimed.discard(index)
        self.grants.forbid(index)

    def is_foreign(self, index: Slot) -> bool:
        """Whether what is known of a slot speaks against this coordinator, accepted by nobody."""
        return index in self._foreign

    def is_claimed(self, index: Slot) -> bool:
        """Whether its logs, where it was placed last, were found to be ours."""
        return index in self._claimed

    def newest_heard(self) -> Generation:
        """The latest coordinator that any of the buffers that answered goes by."""
        return max(self._led_by.values(), default=0)

    # --- what is known ----------------------------------------------------------------------------

    def seen_at(self, index: Slot, now_ms: int, *, in_memory: bool) -> SlotSeen:
        """What is known of a buffer now."""
        return SlotSeen(
            answers=index in self._answered,
            lease_over=now_ms >= self.grants.over_ms(index),
            runs=index in self._handles,
            in_memory=in_memory,
            misses_disk=index in self._elsewhere,
        )

    def met(self) -> list[Slot]:
        """The buffers that have answered in their present life, from the disk that is theirs."""
        return [i for i in sorted(self._incarnations) if i in self._handles]

    def hosted(self) -> list[Slot]:
        """The buffers that have a host, whether they answer or not."""
        return sorted(self._handles)

    def is_missed(self, index: Slot) -> bool:
        """Whether a buffer is to be looked for: it does not answer, or its disk is not there."""
        return index in self._away or index in self._elsewhere

    def missed_disks(self) -> set[str]:
        """The nodes where buffers found another disk than theirs, or none."""
        return {self._nodes[index] for index in self._elsewhere if index in self._nodes}
