"""`FailedMessages`: what a group has given up: skipped, sent to dead letters, or quarantined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pxrs_ray.clock import Clock
from pxrs_ray.consumer.dead_letter import letter_identity, letter_of, letter_partition
from pxrs_ray.consumer.delivery import DeliveryContext, context_at
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.testing.local.logs import LocalQueue


@dataclass(frozen=True, slots=True)
class GivenUpMessage:
    """A message that is not tried again, and what the failure policy made of it."""

    policy: str
    partition: PartitionId
    attempts: int
    error: str
    message: Message

    @property
    def offset(self) -> Offset:
        """Where the message is in its partition."""
        return self.message.offset


class FailedMessages:
    """See the head of this file. What is here outlives every consumer of the group."""

    def __init__(self, group: str, dead_letters: LocalQueue | None, clock: Clock) -> None:
        self.given_up: list[GivenUpMessage] = []
        self.quarantine: dict[tuple[PartitionId, bytes | None], list[GivenUpMessage]] = {}
        self._group = group
        self._dead_letters = dead_letters
        self._clock = clock

    def give_up(
        self,
        shared: DeliveryContext,
        attempts: int,
        error: str,
        policy: FailurePolicy,
        of: Iterable[Message],
    ) -> None:
        """Keep these messages where the policy says."""
        for message in of:
            entry = GivenUpMessage(policy.value, shared.partition, attempts, error, message)
            if policy is FailurePolicy.QUARANTINE:
                parked = self.quarantine.setdefault((shared.partition, message.key), [])
                if all(other.offset != entry.offset for other in parked):
                    parked.append(entry)
            elif policy is FailurePolicy.DEAD_LETTER:
                self._send(replace(shared, attempt=attempts), message, error)
            self.given_up.append(entry)

    def _send(self, shared: DeliveryContext, message: Message, error: str) -> None:
        dead_letters = self._dead_letters
        assert dead_letters is not None, "a group that sends dead letters has a queue for them"
        context = context_at(shared, message.offset)
        letter = letter_of(message, context, error, self._clock.now().wall_ms)
        partition = letter_partition(dead_letters.config.spread(), message)
        dead_letters.append_once(partition, letter, letter_identity(message, context))

    def dead_letters(self) -> list[Message]:
        """The dead letters of this group."""
        if self._dead_letters is None:
            return []
        mine = ("pxrs-group", self._group.encode())
        return [letter for letter in self._dead_letters.messages() if mine in letter.headers]

    def keys_of(self, partition: PartitionId) -> list[bytes]:
        """The keys of a partition that are in quarantine."""
        return [key for at, key in self.quarantine if at == partition and key is not None]
