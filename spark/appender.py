"""`Appender`: carries a feed's frames to a queue's buffers, several calls at a time.

Rules of this file. `FeedCalls` decides what is sent, when it is sent again, and when it is given
up; here its calls are made, and their answers waited for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pxrs_ray.actors.buffer.buffer_client import BufferReply
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.actors.buffer.call_failure import CallFailure, failure_of
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.data.protocol import Appended, OutFrame, Refused
from pxrs_ray.errors import PxrsError
from pxrs_ray.feed.feed_calls import FeedCall, FeedCalls
from pxrs_ray.spark.queue_ref import Target

AppendReply = BufferReply[list[Appended | Refused]] | PxrsError


class Appender:
    """One process's connection to one queue. Not thread-safe; `drain` before relying on
    anything."""

    def __init__(self, target: Target, stall_s: float = 300.0) -> None:
        self._target = target
        self._buffers = BufferClients(target.topology)
        self._calls = FeedCalls(
            target.topology, target.queue, target.buffers, round(stall_s * 1_000), monotonic_ms()
        )
        self._replies: dict[FeedCall, AppendReply] = {}

    @property
    def counts(self) -> tuple[int, int]:
        """How many frames were added, and how many were there."""
        return self._calls.appended, self._calls.repeated

    @property
    def uncompared(self) -> int:
        """How many of those that were there could not be compared any more."""
        return self._calls.uncompared

    def send(self, frames: Sequence[OutFrame]) -> None:
        """Send frames on their way; waits while too many are. Raises what refuses them."""
        while (call := self._calls.crowded(frames)) is not None:
            self._settle(call)
        for made in self._calls.put(frames, monotonic_ms()):
            self._replies[made] = self._append(made)

    def drain(self) -> None:
        """Return when every frame is acknowledged. Raises what refuses one."""
        while (call := self._calls.oldest()) is not None:
            self._settle(call)

    def _append(self, call: FeedCall) -> AppendReply:
        try:
            return self._buffers.of(call.buffer).append(
                self._target.queue,
                call.frames,
                self._calls.wait_ms,
                size_bytes=sum(len(body) for _, _, body in call.frames),
            )
        except PxrsError as error:
            return error

    def _settle(self, call: FeedCall) -> None:
        """Take the answer of a call, and make it again when it is not over."""
        reply = self._replies.pop(call)
        if self._is_over(call, reply):
            return
        pause_ms = call.not_before_ms - monotonic_ms()
        if pause_ms > 0:
            time.sleep(pause_ms / 1_000)
        self._replies[call] = self._append(call)

    def _is_over(self, call: FeedCall, reply: AppendReply) -> bool:
        error = reply
        if not isinstance(reply, PxrsError):
            try:
                answers = reply.result(self._calls.patience_ms(monotonic_ms()) / 1_000)
            except PxrsError as raised:
                error = raised
            else:
                return self._calls.answered(call, answers, monotonic_ms())
        assert isinstance(error, PxrsError)
        if failure_of(error) is not CallFailure.AWAY:
            raise error
        self._buffers.failed(call.buffer, error)
        return self._calls.failed(call, error, monotonic_ms())
