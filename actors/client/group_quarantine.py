"""`GroupQuarantine`: an operator's handle on the keys that a group has put aside.

    aside = topology.group("billing").quarantine
    for entry in aside.list(): ...
    aside.skip(b"account-7")          # give up the message that blocks the key
    aside.retry(b"account-7")         # re-drive the rest, in order; then the key flows again

A request is a record in the quarantine's log: it survives the death of the partition's owner, and
the next owner carries it out. Calls here wait until it is done, or report how far it came.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ray.exceptions import RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.cluster.named_actors import find_actor
from pxrs_ray.actors.consumer.member_requests import GetGroupSpec
from pxrs_ray.actors.consumer.quarantine_log import QuarantineLog
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.topology_requests import GetGroupStatus
from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.processing.quarantine_state import Parked, QuarantinedKey, QuarantineRecord, restored
from pxrs_ray.status.answers import Shown
from pxrs_ray.status.rendering import Table, View

NUDGE_EVERY_S = 1.0
LOOK_EVERY_S = 0.05
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class KeyAside:
    """One key that is put aside: the message that blocks it, and how many wait behind it."""

    partition: PartitionId
    key: bytes | None
    waiting: int
    offset: Offset | None
    attempts: int
    error: str
    since_ms: int
    retrying: bool


class KeysAside(Shown, tuple[KeyAside, ...]):
    """Keys that are put aside; prints as a table."""

    def view(self) -> View:
        """Each key, with the message that blocks it."""
        rows = [
            (f"P{k.partition}", key_text(k.key), k.waiting, k.offset, k.attempts, k.error)
            for k in self
        ]
        head = ("partition", "key", "waiting", "offset", "attempts", "error")
        return View([Table(head, rows)])


def key_text(key: bytes | None) -> str:
    """A key as people read it."""
    return "(no key)" if key is None else key.decode(errors="backslashreplace")


class GroupQuarantine:
    """See the head of this file. Holds no state."""

    def __init__(self, topology: str, group: str) -> None:
        self._coordinator = BlockingCoordinatorClient(topology)
        self._topology, self._group = topology, group

    def _spec(self) -> GroupSpec:
        spec = self._coordinator.call(GetGroupSpec(self._group))
        if spec.config.failure_policy != "quarantine":
            raise UsageError(
                f"group {self._group} has failure_policy = {spec.config.failure_policy!r}: only "
                "'quarantine' puts messages aside"
            )
        return spec

    def _logs(self, key: bytes | None = None, *, every: bool = True) -> Iterator[QuarantineLog]:
        """The logs that hold something, or that hold `key`."""
        spec = self._spec()
        for partition in range(spec.partitions):
            log = QuarantineLog.of_operator(spec, partition)
            if log.refresh().keys and (every or key in log.state.keys):
                yield log

    def list(self) -> KeysAside:
        """Every key that is put aside."""
        return KeysAside(
            _told(log.partition, key, aside)
            for log in self._logs()
            for key, aside in log.state.keys.items()
        )

    def show(self, key: bytes | str | None) -> Sequence[tuple[Parked, Message]]:
        """What waits of one key, in order, each with its message. Raises NotFound."""
        return [
            (entry, restored(log.records(entry.position, 1)[0], log.partition))
            for log, aside in self._of(key_of(key))
            for entry in aside.entries.values()
        ]

    def retry(self, key: bytes | str | None, wait_s: float = WAIT_S) -> KeysAside:
        """Re-drive one key in order; answers what of it is still put aside afterwards.

        None is the messages that have no key. Raises NotFound.
        """
        return self._retry([(log, key_of(key)) for log, _ in self._of(key_of(key))], wait_s)

    def retry_all(self, wait_s: float = WAIT_S) -> KeysAside:
        """Re-drive every key, each in order; answers what is still put aside afterwards."""
        return self._retry([(log, key) for log in self._logs() for key in log.state.keys], wait_s)

    def _retry(
        self, found: Sequence[tuple[QuarantineLog, bytes | None]], wait_s: float
    ) -> KeysAside:
        for log, each in found:
            log.note(QuarantineRecord.RETRY, each)
        end_s = time.monotonic() + wait_s
        left = []
        for log, each in found:
            aside = self._await(log, each, end_s)
            if aside is not None:
                left.append(_told(log.partition, each, aside))
        return KeysAside(left)

    def skip(self, key: bytes | str | None, count: int | None = 1, wait_s: float = WAIT_S) -> int:
        """Give up the first `count` messages of a key (None: all that wait); answers how many.

        They stay in the log of the quarantine until its retention. Raises NotFound.
        """
        skipped = 0
        for log, aside in self._of(key_of(key)):
            for entry in list(aside.entries.values())[:count]:
                log.note(QuarantineRecord.SKIP, key_of(key), position=entry.position)
                skipped += 1
            if not log.state.keys[key_of(key)].entries:
                self._await(log, key_of(key), time.monotonic() + wait_s)
        return skipped

    def _of(self, key: bytes | None) -> Sequence[tuple[QuarantineLog, QuarantinedKey]]:
        found = [(log, log.state.keys[key]) for log in self._logs(key, every=False)]
        if not found:
            raise NotFound(f"key {key_text(key)!r} is not in the quarantine of {self._group}")
        return found

    def _await(self, log: QuarantineLog, key: bytes | None, end_s: float) -> QuarantinedKey | None:
        """Wait until a key flows again (None), or its re-driving has failed (what waits)."""
        nudge_s = 0.0
        while True:
            aside = log.refresh().keys.get(key)
            if aside is None or not aside.retrying or time.monotonic() > end_s:
                return aside
            if time.monotonic() >= nudge_s:
                nudge_s = time.monotonic() + NUDGE_EVERY_S
                self._nudge(log.partition)
            time.sleep(LOOK_EVERY_S)

    def _nudge(self, partition: PartitionId) -> None:
        """Tell the owner, if there is one, to look at its quarantine."""
        status = self._coordinator.call(GetGroupStatus(self._group))
        owner = status.partitions[partition].owner
        for consumer in status.consumers:
            if consumer.member == owner:
                name = names.consumer(
                    self._topology, self._group, consumer.member, consumer.incarnation
                )
                with suppress(RayError):
                    found = find_actor(name)
                    if found is not None:
                        found.redrive.remote(partition)


def key_of(key: bytes | str | None) -> bytes | None:
    """A key as the log has it; None is no key."""
    return key.encode() if isinstance(key, str) else key


def _told(partition: PartitionId, key: bytes | None, aside: QuarantinedKey) -> KeyAside:
    first = aside.first
    if first is None:
        return KeyAside(partition, key, 0, None, 0, "", 0, aside.retrying)
    waiting, error = len(aside.entries), first.error
    return KeyAside(
        partition, key, waiting, first.offset, first.attempts, error, first.at_ms, aside.retrying
    )
