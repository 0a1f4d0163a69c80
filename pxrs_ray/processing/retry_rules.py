"""Decides what follows a handler's failure, from a policy and a count. Pure.

Rules of this file. An attempt is counted before it is judged. After `attempts_max` failed attempts
the `FailurePolicy` decides, and no policy ever loses the message silently: STOP keeps it and halts
the partition with an alarm, SKIP records it, DEAD_LETTER moves it, QUARANTINE puts it aside with
all later messages of its key, in order, until somebody retries or skips them. A handler that raises
`RetryAfter` has not failed: its message is `Deferred`, for as long as it said, and no attempt.
"""

from __future__ import annotations

from enum import StrEnum

from pxrs_ray.backoff import pause_after
from pxrs_ray.errors import ConfigError, RetryAfter
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.supervision.restart_rules import told


class FailurePolicy(StrEnum):
    """What happens to a message that failed `attempts_max` times."""

    STOP = "stop"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How often and how soon a failed message is tried again. 0 attempts means without end."""

    attempts_max: int
    backoff_ms: int
    backoff_ms_max: int
    policy: FailurePolicy

    def __post_init__(self) -> None:
        if self.attempts_max < 0 or self.backoff_ms < 1 or self.backoff_ms_max < self.backoff_ms:
            raise ConfigError(
                f"retries need attempts_max >= 0 and 1 <= backoff_ms <= backoff_ms_max, got {self}"
            )


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Try again, but not before `delay_ms` have passed."""

    delay_ms: int


class Deferred(str):
    """What a handler said, in words, that wants its message again later: no failed attempt."""

    delay_ms: int

    @classmethod
    def by(cls, error: RetryAfter) -> Deferred:
        """What this error asks for."""
        made = cls(told(error))
        made.delay_ms = round(error.seconds * 1_000)
        return made


def outcome(error: BaseException) -> str:
    """How a call ended that raised: the error in words, or when its message is wanted again."""
    return Deferred.by(error) if isinstance(error, RetryAfter) else told(error)


def after_failure(rules: RetryRules, attempts: int) -> TryAgain | FailurePolicy:
    """Judge the failure that brought a message to `attempts` failed attempts."""
    assert attempts >= 1
    if rules.attempts_max and attempts >= rules.attempts_max:
        return rules.policy
    return TryAgain(backoff(rules, attempts))


def backoff(rules: RetryRules, attempts: int) -> int:
    """The pause after so many failed attempts, in milliseconds: it doubles up to its maximum."""
    return pause_after(attempts, rules.backoff_ms, rules.backoff_ms_max)
