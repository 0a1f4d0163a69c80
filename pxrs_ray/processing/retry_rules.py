"""Decides what follows a handler's failure, from a policy and a count. Pure.

Rules of this file. An attempt is counted before it is judged. After `attempts_max` failed attempts
the `FailurePolicy` decides, and no policy ever loses the message silently: STOP keeps it and halts
the partition with an alarm, SKIP records it, DEAD_LETTER moves it, QUARANTINE puts it aside with
all later messages of its key, in order, until somebody retries or skips them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pxrs_ray.backoff import pause_after
from pxrs_ray.errors import ConfigError


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
class RetryAfter:
    """Try again, but not before `delay_ms` have passed."""

    delay_ms: int


def after_failure(rules: RetryRules, attempts: int) -> RetryAfter | FailurePolicy:
    """Judge the failure that brought a message to `attempts` failed attempts."""
    assert attempts >= 1
    if rules.attempts_max and attempts >= rules.attempts_max:
        return rules.policy
    return RetryAfter(backoff(rules, attempts))


def backoff(rules: RetryRules, attempts: int) -> int:
    """The pause after so many failed attempts, in milliseconds: it doubles up to its maximum."""
    return pause_after(attempts, rules.backoff_ms, rules.backoff_ms_max)
