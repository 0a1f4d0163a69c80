"""`MessageCalls`: makes the calls of producers and consumers on a buffer: `append` and `fetch`.

Rules of this file. `pxrs_ray.log.buffer_calls` decides; this module waits and answers. A call that
can be answered at once is answered at once: over a socket no task is made for it. Every other call
waits for a change of its partitions, or for the lease. Nothing polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence, Set
from functools import partial
from typing import Any, cast

from pxrs_ray.actors.buffer.long_poll import HeldCall, LongPoll
from pxrs_ray.actors.buffer.serving_state import ServingState
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.link_messages import reply_bytes
from pxrs_ray.data.protocol import Appended, Fetched, OutFrame, PartsRead, ReadPosition, Refused
from pxrs_ray.errors import LogError
from pxrs_ray.log.buffer_calls import AppendCall, FetchCall
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.model import PartitionId, QueuePartition


class MessageCalls(ServingState):
    """The message part of `Buffer`. See the rules at the head of this file."""

    def _begin(self) -> None:
        self._held_of: dict[str, HeldFetch] = {}
        super()._begin()

    # ---- append

    async def append(
        self, queue: str, frames: Sequence[OutFrame], wait_ms: int = 0
    ) -> list[Appended | Refused]:
        """Append each frame to its partition, and answer one by one, in the order given.

        Acknowledged according to the queue's durability. Idempotent under (producer id, epoch,
        sequence) in the frame's header: a repeat gets the first answer. A frame that comes
        before its predecessor, or to a full partition, or without a lease, waits up to `wait_ms`;
        then SequenceGap, PartitionFull or LeaseOver. Further refusals: ProducerFenced,
        SequenceConflict, MessageTooLarge, DiskFull, LogLost, LogCorrupted, NotFound (no such queue
        here).
        """
        found = self._appended(queue, frames, wait_ms)
        return found if isinstance(found, list) else await found

    def _appended(
        self, queue: str, frames: Sequence[OutFrame], wait_ms: int
    ) -> list[Appended | Refused] | Coroutine[Any, Any, list[Appended | Refused]]:
        """What `append` answers where that is known at once; else the work that finds it."""
        self._tending.begin()
        self._counts["appends"] += 1
        call = AppendCall(self._manager, self._counts, self._gate.over, queue, frames)
        if self._append_at_once(call):
            answer = call.answer(wait_ms <= 0)
            if answer is not None:
                return answer
        return self._append_patiently(call, queue, frames, wait_ms)

    def _append_at_once(self, call: AppendCall) -> bool:
        """A round on the spot; False where its jobs have to wait, and it was none."""
        gate = self._gate
        if not call.begin(self._may_append(), gate.tenure.term):
            return True
        if call.logs:
            run, of_logs = partial(self._run, call), set(call.logs.values())
            if not self._writer.at_once(run, of_logs, call.size_bytes):
                return False
        call.end({}, self._may_append(), gate.tenure.term)
        return True

    def _may_append(self) -> bool:
        """Whether an append may begin now, and be acknowledged."""
        return self._gate.is_open()

    def _run(self, call: AppendCall) -> None:
        """Append what of a call can be appended. For the one writer of the logs."""
        call.run(wall_ms())

    async def _append_patiently(
        self, call: AppendCall, queue: str, frames: Sequence[OutFrame], wait_ms: int
    ) -> list[Appended | Refused]:
        places = {(queue, partition) for partition, _, _ in frames}
        with LongPoll(self._waiting, places, wait_ms) as poll:
            while True:
                final = poll.over
                await self._append_round(call)
                answer = call.answer(final)
                if answer is not None:
                    return answer
                self._counts["appends_waiting"] += 1
                await poll.wait()
                self._counts["appends_waiting"] -= 1

    async def _append_round(self, call: AppendCall) -> None:
        gate, unsynced = self._gate, cast(Mapping[PartitionLog, LogError], {})
        if not call.begin(self._may_append(), gate.tenure.term):
            return
        if call.logs:
            of_logs = set(call.logs.values())
            run = partial(self._run, call)
            _, unsynced = await self._writer.do_each(run, of_logs, call.size_bytes)
        call.end(unsynced, self._may_append(), gate.tenure.term)

    # ---- fetch

    async def fetch(
        self,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, ReadPosition],
        bytes_max: int = 8 << 20,
        wait_ms: int = 1_000,
        reader: str = "",
    ) -> list[Fetched | Refused]:
        """Read several partitions at once; wait up to `wait_ms` for the first message.

        A newer call of a `reader` that is named ends its older one at once: what it reads can
        change without leaving waits behind.

        `positions` gives per partition the reader's epoch and the offset to read from. Each gets
        its share of `bytes_max`, but at least one frame. Only partitions with messages or a
        refusal are in the reply, so a time-out is an empty list. An append wakes waiting readers;
        nothing polls. Refusals: Fenced (an epoch below the highest seen of that group and
        partition, also while waiting), OffsetOutOfRange, LogLost, LogCorrupted, NotFound; LeaseOver
        for all, at once when the lease ends while it waits.
        """
        found = self._fetched(queue, group, positions, bytes_max, wait_ms, reader)
        if isinstance(found, list):
            return found
        coming: asyncio.Future[PartsRead] = asyncio.get_running_loop().create_future()
        found.then(coming.set_result, coming.set_exception)
        try:
            return await coming
        finally:
            found.forget()

    def _fetched(
        self,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, ReadPosition],
        bytes_max: int,
        wait_ms: int,
        reader: str,
    ) -> PartsRead | HeldFetch:
        """What `fetch` answers where that is known at once; else the call, which is held."""
        self._tending.begin()
        self._counts["fetches"] += 1
        older = self._held_of.get(reader)
        if older is not None:
            older.end()
        look = _Look(self, queue, group, positions, bytes_max)
        found = look(final=wait_ms <= 0)
        if isinstance(found, list):
            return found
        held = HeldFetch(self, look, wait_ms, reader)
        if found is not None:
            held.await_look(found)
        return held

    def _fetched_up_to(self, most: int, *arguments: Any) -> Any:
        """As `_fetched`; what is more than so many bytes Ray carries better: that is None."""
        found = self._fetched(*arguments)
        if isinstance(found, list):
            return _up_to(most, found)
        found.reply_bytes_max = most
        return found


class _Look:
    """The looks of one fetch at its logs, a round each."""

    def __init__(
        self,
        calls: MessageCalls,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, ReadPosition],
        bytes_max: int,
    ) -> None:
        self.places = [(queue, partition) for partition in positions]
        self._gate, self._reader = calls._gate, calls._reader
        self._call = FetchCall(positions, self._gate.over)
        self._asked = (queue, group, bytes_max)

    def __call__(
        self, *, final: bool, changed: Set[QueuePartition] | None = None
    ) -> PartsRead | Coroutine[Any, Any, PartsRead | None] | None:
        """What has come; None: nothing yet. A coroutine finds out where files must be read."""
        call, gate = self._call, self._gate
        if changed is not None:
            call.changed([partition for _, partition in changed], gate.is_open())
        call.begin(final)
        if not gate.is_open():
            return call.end([], is_open=False, final=final)
        queue, group, bytes_max = self._asked
        found = self._reader.fetch(queue, group, call.look, bytes_max, final)
        if isinstance(found, list):
            return call.end(found, gate.is_open(), final)
        return self._look_into_files(found, final)

    async def _look_into_files(
        self, reading: Coroutine[Any, Any, PartsRead], final: bool
    ) -> PartsRead | None:
        return self._call.end(await reading, self._gate.is_open(), final)


class HeldFetch(HeldCall):
    """A fetch that waits for messages; there is one of a `reader` that is named."""

    reply_bytes_max: int | None = None

    def __init__(self, calls: MessageCalls, look: _Look, wait_ms: int, reader: str) -> None:
        super().__init__(calls._waiting, look.places, wait_ms)
        self._its_look, self._reader = look, reader
        self._held_of, self._counts = calls._held_of, calls._counts
        self._counts["fetches_waiting"] += 1
        self._is_held = True
        if reader:
            self._held_of[reader] = self

    def look(self, changed: Set[QueuePartition], *, final: bool) -> Any:
        """See `_Look`."""
        return self._its_look(final=final, changed=changed)

    def _answer(self, found: Any, *, failed: bool = False) -> None:
        if self.reply_bytes_max is not None and not failed:
            found = _up_to(self.reply_bytes_max, found)
        super()._answer(found, failed=failed)

    def forget(self) -> None:
        """As any held call."""
        super().forget()
        if self._is_held:
            self._is_held = False
            self._counts["fetches_waiting"] -= 1
            if self._held_of.get(self._reader) is self:
                del self._held_of[self._reader]


def _up_to(most: int, found: PartsRead) -> PartsRead | None:
    return found if reply_bytes(found) <= most else None
