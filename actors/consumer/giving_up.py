"""`GivingUp`: what a consumer does with messages that are not tried again, and what it tells of
them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from pxrs_ray.actors.consumer.dead_letter_sender import DeadLetters
from pxrs_ray.actors.consumer.reply_sender import ReplySender
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.consumer.worker import Failure
from pxrs_ray.model import Message
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.status.answers import GivenUp

GIVEN_UP_KEPT = 20
GIVEN_UP_CHARS = 300
BEHIND = "an earlier message of its key failed, and is in quarantine"


class GivingUp:
    """Several worker threads call it at once."""

    def __init__(self, spec: GroupSpec) -> None:
        self.count = 0
        self._told: deque[tuple[float, GivenUp]] = deque(maxlen=GIVEN_UP_KEPT)
        self.replies = ReplySender(spec)
        self.configure(spec)

    def configure(self, spec: GroupSpec) -> None:
        """Go on with other options of the group."""
        self._letters = DeadLetters(spec)

    @property
    def newest(self) -> tuple[GivenUp, ...]:
        """The last messages that were given up, and how long ago."""
        now_s = time.monotonic()
        # A copy in one step: worker threads add to it meanwhile.
        return tuple(replace(told, ago_s=now_s - at_s) for at_s, told in list(self._told))

    def keep(self, failure: Failure, messages: Iterable[Message]) -> None:
        """Send what is dead-lettered, tell who waits for a reply, and only then go on.

        Raises what prevents that; to be called again is harmless.
        """
        messages = list(messages)
        if failure.policy is FailurePolicy.DEAD_LETTER:
            self._letters.send(messages, failure)
        aside = failure.policy is FailurePolicy.QUARANTINE
        self.replies.give_up(messages, failure.error or BEHIND, for_now=aside)
        at, error = failure.context, failure.error[:GIVEN_UP_CHARS]
        for message in messages:
            self.count += 1
            told = GivenUp(at.partition, message.offset, failure.policy.value, at.attempt, error)
            self._told.append((time.monotonic(), told))
