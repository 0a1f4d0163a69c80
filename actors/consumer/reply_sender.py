"""`ReplySender`: sends what handlers reply, and the errors of what is given up."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.data.batch import Headers
from pxrs_ray.data.reply import REPLIES_SUFFIX, error_header, refuse_replies
from pxrs_ray.model import Message

if TYPE_CHECKING:
    from pxrs_ray.actors.client.producer import Producer

# Not for long: whoever waits must hear soon that it shall stop, and tries again by itself.
TRY_FOR_S = 5.0
# A queue that keeps no replies may do so later: it is asked again.
LOOK_AGAIN_S = 30.0


class ReplySender:
    """One consumer's replies. Several worker threads call it at once: they are sent together."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._look_again_s = float("-inf")

    def reply(self, message_id: str, payload: bytes | str, headers: Headers) -> None:
        """Return when the reply is kept. Raises UsageError where the queue keeps none."""
        producer = self._find()
        if producer is None:
            raise refuse_replies(self._spec.config.queue)
        producer.send(message_id, payload, headers).result(TRY_FOR_S)

    def give_up(self, messages: Iterable[Message], error: str, *, for_now: bool) -> None:
        """Tell who waits that these are given up, or put aside `for_now`; where the queue keeps no
        replies, nobody."""
        named = [message.id for message in messages if message.id is not None]
        producer = self._find() if named else None
        if producer is not None:
            sent = [
                producer.send(each, b"", [error_header(error, for_now=for_now)]) for each in named
            ]
            for receipt in sent:
                receipt.result(TRY_FOR_S)

    def close(self) -> None:
        """End its producer, where it has one."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(TRY_FOR_S)

    def _find(self) -> Producer | None:
        from pxrs_ray.actors.client.topology import attach

        with self._lock:
            if self._producer is None and monotonic() >= self._look_again_s:
                queue, topology = self._spec.config.queue, attach(self._spec.topology)
                declared = topology.config.resolved_queue(queue)
                if declared.replies:
                    self._producer = topology.producer(queue + REPLIES_SUFFIX)
                else:
                    self._look_again_s = monotonic() + LOOK_AGAIN_S
            return self._producer
