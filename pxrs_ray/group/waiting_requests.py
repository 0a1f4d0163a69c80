"""`WaitingRequests`: who waits for an answer of a group, and for what. Pure.

Rules of this file. A request waits in one place at a time: for records to become durable, among the
heartbeats of its member, or parked until the group is well. It is answered once. An answered
request is removed wherever it still waits.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from pxrs_ray.errors import DeadlineExceeded, Fenced
from pxrs_ray.group.events import Event, GroupEffect, Heartbeat, Response
from pxrs_ray.group.runtime_effects import GroupAnswer, Output, Refusal
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Generation, MemberId


@dataclass(slots=True, eq=False)
class GroupCall:
    """One request and its caller. Without an event it waits for what is decided already.

    A heartbeat has an end, at which it is answered without news; `heard` is its answer so far.
    `refused` is what it is told once that is durable. `parked_to_ms` is how long it waits for a
    group that has failed, at most.
    """

    caller: object
    event: Event | None
    end_ms: int | None = None
    heard: Response | None = None
    refused: Fenced | None = None
    parked: bool = False
    parked_to_ms: int | None = None
    done: bool = False


Held = GroupCall | tuple[GroupEffect, ...]


class WaitingRequests:
    """See the rules at the head of this file."""

    def __init__(self, outputs: list[Output]) -> None:
        self._outputs = outputs
        # Up to which (generation, sequence) each member knows its assignment.
        self.seen: dict[MemberId, tuple[Generation, int]] = {}
        self._deferred: deque[tuple[int, Held, Response | None]] = deque()
        self._heartbeats: dict[MemberId, list[GroupCall]] = {}
        self._parked: list[GroupCall] = []
        self._ends: list[tuple[int, int, GroupCall]] = []
        self._ends_made = 0

    # --- answers ----------------------------------------------------------------------------------

    def answer(self, call: GroupCall, reply: Response | None) -> None:
        """GroupAnswer a caller, unless that is done."""
        if not call.done:
            call.done = True
            self._outputs.append(GroupAnswer(call.caller, reply))

    def refuse(self, call: GroupCall, error: BaseException) -> None:
        """Raise this at a caller, unless it is answered."""
        if not call.done:
            call.done = True
            self._outputs.append(Refusal(call.caller, error))

    def settled(self, call: GroupCall, reply: Response | None) -> None:
        """What a request waited for is durable."""
        if call.refused is not None:
            self.refuse(call, call.refused)
        else:
            self.answer(call, reply)

    def have_seen(self, generation: Generation, newest: Iterable[tuple[MemberId, int]]) -> bool:
        """Whether all of these members have said that they know their newest assignment."""
        return all(
            self.seen.get(member, (0, 0)) >= (generation, sequence) for member, sequence in newest
        )

    # --- for records ------------------------------------------------------------------------------

    def defer(self, after: int, held: Held, reply: Response | None = None) -> None:
        """Hold this until `after` records are durable. `after` never falls."""
        self._deferred.append((after, held, reply))

    def released(self, durable: int) -> Iterator[tuple[Held, Response | None]]:
        """Let go of everything that waited for what is durable now, in order."""
        while self._deferred and self._deferred[0][0] <= durable:
            _, held, reply = self._deferred.popleft()
            yield held, reply

    # --- for news ---------------------------------------------------------------------------------

    def await_news(self, member: MemberId, call: GroupCall) -> None:
        """Hold a heartbeat until its member has a newer assignment."""
        self._heartbeats.setdefault(member, []).append(call)

    def for_news_of(self, member: MemberId) -> list[GroupCall]:
        """Let go of the heartbeats of a member."""
        return [call for call in self._heartbeats.pop(member, ()) if not call.done]

    # --- for the group to be well -----------------------------------------------------------------

    def park(self, call: GroupCall, to_ms: int) -> None:
        """Hold a request until the group is well, or `to_ms`; the end of its first wait holds."""
        call.parked = True
        if call.parked_to_ms is None:
            call.parked_to_ms = to_ms
        self.ends_at(call, call.parked_to_ms)
        self._parked.append(call)

    def unparked(self) -> list[GroupCall]:
        """Let go of everything that is parked, in order."""
        found, self._parked = self._parked, []
        for call in found:
            call.parked = False
        return [call for call in found if not call.done]

    def all(self) -> list[GroupCall]:
        """Let go of everybody, and forget the effects that wait."""
        found = [held for _, held, _ in self._deferred if isinstance(held, GroupCall)]
        found += [call for waiting in self._heartbeats.values() for call in waiting]
        found += self.unparked()
        self._deferred.clear()
        self._heartbeats.clear()
        return [call for call in dict.fromkeys(found) if not call.done]

    def interrupt(self, park_to_ms: int, told: str) -> None:
        """What is waited for is forgotten: park everybody, to be decided anew.

        Who only waits is answered. Who cannot be parked is refused, with `told`.
        """
        for call in self.all():
            try:
                if call.event is None:
                    self.answer(call, None)
                else:
                    call.refused = None
                    self.park(call, park_to_ms)
            except BaseException:  # noqa: BLE001 - nobody else may wait in vain for it
                self.refuse(call, DeadlineExceeded(told))

    # --- ends -------------------------------------------------------------------------------------

    def ends_at(self, call: GroupCall, end_ms: int) -> None:
        """Look at a request at this moment, if it still waits."""
        self._ends_made += 1
        heapq.heappush(self._ends, (end_ms, self._ends_made, call))

    def next_end_ms(self) -> int | None:
        """When the next request is to be looked at; None while none is."""
        while self._ends and self._ends[0][2].done:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def end(self, now_ms: int, told: str, problem: str) -> None:
        """GroupAnswer those who have waited for as long as they may.

        `told` says how the group is, `problem` what is wrong with the registry.
        """
        while self._ends and self._ends[0][0] <= now_ms:
            call = heapq.heappop(self._ends)[2]
            if call.done:
                continue
            if call.parked and call.parked_to_ms is not None and call.parked_to_ms <= now_ms:
                self.refuse(call, DeadlineExceeded(told))
            elif call.end_ms is not None and call.end_ms <= now_ms:
                self._end_heartbeat(call, problem or "it has not answered yet")

    def _end_heartbeat(self, call: GroupCall, problem: str) -> None:
        if call.refused is not None:
            # Not as one who is heard, and whose lease begins anew.
            waits = f"{call.refused}; that waits for the registry: {problem}"
            self.refuse(call, DeadlineExceeded(waits))
        elif call.heard is not None:
            self.answer(call, call.heard)
            assert isinstance(call.event, Heartbeat)
            self._forget_heartbeat(call.event.member, call)

    def _forget_heartbeat(self, member: MemberId, call: GroupCall) -> None:
        waiting = self._heartbeats.get(member, [])
        if call in waiting:
            waiting.remove(call)
        if not waiting:
            self._heartbeats.pop(member, None)
