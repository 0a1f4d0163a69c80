"""Change streams for any process: a group's ownership changes, and broadcasts to a service's
servers.

Rules of this file. A listener is no member of any group. It misses nothing that comes while it
listens. A slow listener holds up nobody.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pxrs_ray.actors.client.group import Group
from pxrs_ray.actors.client.queue_reader import QueueReader
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.data.batch import Headers
from pxrs_ray.group.ownership_events import PartitionChangeEvent, PartitionChanges
from pxrs_ray.model import Message, Offset

NOTIFICATIONS = ".notifications"
LOOK_EVERY_S = 0.1
KEPT_MS = 3_600_000


def partition_changes(group: Group, quiet_s: float | None = None) -> Iterator[PartitionChangeEvent]:
    """Every change of who owns what, from now on, in order and numbered.

    Ends when nothing has changed for `quiet_s`; without it, never. Raises OffsetOutOfRange when
    the listener was so slow that changes are no longer kept.
    """
    status = group.status()
    owners = {p.partition: p.owner for p in status.partitions if p.owner is not None}
    changes = PartitionChanges(group.name, status.version, owners)
    heard_s = time.monotonic()
    while quiet_s is None or time.monotonic() - heard_s < quiet_s:
        found = group.history(changes.sequence)
        for change in found:
            event = changes.take(change)
            if event is not None:
                heard_s = time.monotonic()
                yield event
        if not len(found):
            time.sleep(LOOK_EVERY_S)


class Notifications:
    """A broadcast to every server of a service: invalidations, changed settings.

    The queue `{service}.notifications` has one partition, so every server gets all of it in the
    same order.
    """

    def __init__(self, topology: Topology, service: str) -> None:
        self.queue = service + NOTIFICATIONS
        self._topology = topology
        config = topology.config
        if self.queue not in config.queues:
            options: dict[str, Any] = {
                "partitions": 1,
                "retention_ms": KEPT_MS,
                "drop_unread": True,
            }
            topology.apply(config.changed(queues={self.queue: options}))

    def tell(self, payload: bytes | str, headers: Headers = None) -> Offset:
        """Send a notification to every listener; returns its number when it is stored."""
        with self._topology.producer(self.queue) as producer:
            receipt = producer.send(None, payload, headers)
            producer.flush()
            offset: Offset | None = receipt.result().offset
        assert offset is not None, "only a repeat has no offset, and a new producer repeats nothing"
        return offset

    def listen(self, after: Offset | None = None) -> Iterator[Message]:
        """Notifications from now on, or after the one of that number; for ever."""
        peek = QueueReader.of(self._topology, self.queue)
        if after is not None:
            peek.only({0: after + 1})
        return peek.messages(follow=True)
