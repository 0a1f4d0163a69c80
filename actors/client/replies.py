"""`Replies`: waits for what handlers reply to messages, in whatever process they were sent.

    with attach("shop").replies("prompts") as replies:
        answer = replies.ask("user-7", "what is a queue?", timeout_s=30).payload
        earlier = replies.wait("id-of-a-message-that-somebody-sent", timeout_s=30)

Rules of this file. Any thread may wait. Of those that wait for the same partition one asks its
buffer, by a long poll, and tells the others; so many waits cost as much as one. So does the look
whether a group is halted before a message: one waits for it, and all know what it has found.
"""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.closing import Closing
from pxrs_ray.data.batch import Headers, batches
from pxrs_ray.data.protocol import Refused
from pxrs_ray.data.reply import REPLIES_SUFFIX, RepliesRead, Reply, refuse_replies
from pxrs_ray.errors import DeadlineExceeded, HandlerError, PxrsError
from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.status.halts import HaltedMessages, halt_before, halted_from
from pxrs_ray.supervision.supervisor import off_loop

if TYPE_CHECKING:
    from pxrs_ray.actors.client.producer import Producer
    from pxrs_ray.producer.receipt import MessagePlace
    from pxrs_ray.status.answers import GroupStatus

READER = "?replies"
WAIT_S = 30.0
POLL_MS = 1_000
# When it is first looked whether a group is halted before a message that has no reply, and again.
HALTS_FIRST_S, HALTS_EVERY_S = 1.5, 5.0
# Who waits is told a halt by a look that began after its wait: how soon after another one.
HALTS_AGAIN_S = 0.5
# For how long a look reads what stands behind halts; the next one goes on from there.
SEARCH_S = 1.0


class _Read:
    """How far one partition was read, and who reads it now."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.at: Offset = 0
        self.found = RepliesRead()
        self.is_polling = self.is_at_end = False

    def asked(self) -> None:
        """Its buffer has answered, or has not: another may ask now."""
        with self.changed:
            self.is_polling = False
            self.changed.notify_all()


class Replies(Closing):
    """The replies to the messages of one queue. Made by `Topology.replies`."""

    def __init__(self, topology: str, queue: str) -> None:
        self._topology, self._queue = Topology(topology), queue
        _, config, buffers = self._topology.queue_spec(queue)
        declared = config.resolved_queue(queue)
        if not declared.replies:
            raise refuse_replies(queue)
        kept = queue + REPLIES_SUFFIX
        self._full_name = config.full_name(kept)
        self._partitioner = config.resolved_queue(kept).spread().partitioner()
        self._logs = BlockingBufferClient(topology, buffers)
        self._reads: dict[PartitionId, _Read] = {}
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._sent_to = config.full_name(queue)
        self._groups: tuple[GroupStatus, ...] = ()
        self._behind = HaltedMessages()
        self._is_looking = self._is_searching = False
        self._looked_s = float("-inf")

    def ask(
        self,
        key: bytes | str | None,
        payload: bytes | str,
        headers: Headers = None,
        *,
        id: str | None = None,  # noqa: A002 - the name that producers have for it
        timeout_s: float = WAIT_S,
    ) -> Reply:
        """Send a message and wait for its reply. Raises as `Producer.send` and `wait`, and
        HandlerError within seconds while all groups of the queue are halted before it.

        Who asks again with the `id` of an earlier message gets the reply to that one.
        """
        end_s = time.monotonic() + timeout_s
        name = uuid.uuid4().hex if id is None else id
        sent = self._made().send(key, payload, headers, id=name)
        return self._by(end_s, name, timeout_s, sent.result(timeout_s))

    async def ask_async(
        self,
        key: bytes | str | None,
        payload: bytes | str,
        headers: Headers = None,
        *,
        id: str | None = None,  # noqa: A002 - the name that producers have for it
        timeout_s: float = WAIT_S,
    ) -> Reply:
        """As `ask`, for event loops."""
        return await off_loop(partial(self.ask, key, payload, headers, id=id, timeout_s=timeout_s))

    def wait(self, message_id: str, timeout_s: float = WAIT_S) -> Reply:
        """The reply to the message with this id, as soon as it is kept.

        Raises HandlerError when the message was given up or put aside, and within seconds while all
        groups of the queue are halted before it; and DeadlineExceeded. The message may have been
        sent by anybody, and replied to before; replies are kept for a day.
        """
        return self._by(time.monotonic() + timeout_s, message_id, timeout_s)

    def _by(
        self, end_s: float, message_id: str, timeout_s: float, sent: MessagePlace | None = None
    ) -> Reply:
        partition = self._partitioner.partition(message_id)
        with self._lock:
            read = self._reads.setdefault(partition, _Read())
        began_s, looks, halted = time.monotonic(), 0, ""
        look_s = began_s + HALTS_FIRST_S
        while True:
            with read.changed:
                found = read.found.to(message_id)
                # What holds for now may hold no more.
                if found is not None and (looks or not found.for_now):
                    return found.sound()
                if halted and read.is_at_end:
                    raise HandlerError(f"nobody comes to the message until somebody acts: {halted}")
                left_s = end_s - time.monotonic()
                # What was there at the deadline counts, however much it is; but not for ever.
                if looks and left_s <= 0 and (read.is_at_end or left_s < -WAIT_S):
                    raise DeadlineExceeded(
                        f"no reply to {message_id!r} of {self._queue} in {timeout_s:g} s: does its "
                        "handler reply, and do its consumers keep up? `pxrs status` says how far"
                    )
                is_due = time.monotonic() >= look_s
            if is_due:
                look_s = time.monotonic() + HALTS_EVERY_S
                halted = self._halt(message_id, sent, began_s, left_s)
                with read.changed:
                    read.is_at_end = False  # a reply that came meanwhile counts
            with read.changed:
                looks += 1
                if read.is_polling:
                    read.changed.wait(min(max(left_s, 0.01), POLL_MS / 1_000))
                    continue
                read.is_polling = True
                forgotten = looks == 1 and read.found.has_forgotten
            old = self._look_back(partition, read, message_id) if forgotten else None
            # Who knows of a halt waits no longer than for what is there.
            wait_s = 0.0 if halted else min(max(left_s, 0.0), POLL_MS / 1_000)
            self._read_on(partition, read, round(wait_s * 1_000))
            if old is not None:
                return old.sound()

    def _halt(
        self, message_id: str, sent: MessagePlace | None, began_s: float, left_s: float
    ) -> str:
        """Why no group comes to the message before somebody acts; '' while one does, or while it
        is not known where the message is. Who waits since `began_s` is told nothing older."""
        self._look(HALTS_EVERY_S)
        told = self._halt_known(message_id, sent, left_s)
        if told and self._looked_s < began_s:
            self._look(HALTS_AGAIN_S)
            told = self._halt_known(message_id, sent, left_s)
        return told if self._looked_s >= began_s else ""

    def _look(self, every_s: float) -> None:
        """Learn which groups are halted, unless that is known and no older."""
        now_s = time.monotonic()
        with self._lock:
            if now_s - self._looked_s < every_s or self._is_looking:
                return
            self._is_looking = True
        try:
            with suppress(PxrsError):  # who waits goes on waiting
                groups = tuple(self._topology.status().groups)
                with self._lock:
                    self._groups, self._looked_s = groups, now_s
                    self._behind.look(halted_from(groups, self._sent_to))
        finally:
            self._is_looking = False

    def _halt_known(self, message_id: str, sent: MessagePlace | None, left_s: float) -> str:
        if sent is not None:
            place: tuple[PartitionId, Offset | None] | None = sent.partition, sent.offset
        else:
            place = self._place_behind(message_id, min(SEARCH_S, max(left_s, 0.0)))
        return "" if place is None else halt_before(self._groups, self._sent_to, *place) or ""

    def _place_behind(self, message_id: str, for_s: float) -> tuple[PartitionId, Offset] | None:
        """Where the message stands behind a halt, as far as that was read; reads on for a while
        unless another does."""
        with self._lock:
            found, to_read = self._behind.place_of(message_id), self._behind.next()
            if found is not None or to_read is None or self._is_searching:
                return found
            self._is_searching = True
        end_s = time.monotonic() + for_s
        try:
            while to_read is not None and time.monotonic() < end_s:
                partition, at = to_read
                with suppress(PxrsError):
                    messages, to = self._fetched(partition, at, 0, self._sent_to)
                    with self._lock:
                        self._behind.take(partition, messages, to)
                with self._lock:
                    to_read = self._behind.read_after(partition, at)
        finally:
            self._is_searching = False
        with self._lock:
            return self._behind.place_of(message_id)

    async def wait_async(self, message_id: str, timeout_s: float = WAIT_S) -> Reply:
        """As `wait`, for event loops."""
        return await off_loop(self.wait, message_id, timeout_s)

    def _read_on(self, partition: PartitionId, read: _Read, wait_ms: int) -> None:
        """Read what there is, or what comes in time; whatever happens, another may ask then."""
        try:
            messages, at = self._fetched(partition, read.at, wait_ms)
            with read.changed:
                read.found.take(messages)
                read.is_at_end, read.at = at == read.at, at
        finally:
            read.asked()

    def _look_back(self, partition: PartitionId, read: _Read, message_id: str) -> Reply | None:
        """Read all again that is not remembered."""
        at, end, found = 0, read.at, RepliesRead()
        try:
            while at < end:
                messages, to = self._fetched(partition, at, 0)
                found.take(each for each in messages if each.key == message_id.encode())
                if to <= at:
                    break
                at = to
        except BaseException:
            read.asked()
            raise
        return found.to(message_id)

    def _fetched(
        self, partition: PartitionId, at: Offset, wait_ms: int, queue: str | None = None
    ) -> tuple[list[Message], Offset]:
        """What the log has from there on, and where it goes on; that of replies, or of `queue`."""
        name = self._full_name if queue is None else queue
        part = self._logs.fetch(name, READER, partition, at, wait_ms=wait_ms)
        if part is None:
            return [], at
        if isinstance(part, Refused):
            if part.start_offset is not None and part.start_offset > at:
                return [], part.start_offset
            raise part.error
        return [message for batch in batches(part, at) for message in batch], part.next_offset

    def _made(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = self._topology.producer(self._queue)
            return self._producer

    def close(self) -> None:
        """End the producer of `ask`, where there is one."""
        if self._producer is not None:
            self._producer.close()
