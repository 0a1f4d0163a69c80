"""Processing strategies: what happens to each message of a pack when a round of it is over.

Rules of this file. A round ends when every message has succeeded or failed, or when the pack has
taken its time: then those that still run, or never began, have timed out. The strategy is a table
from each fate to what follows; the limits (retries, failure percentage) are applied after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pxrs_ray.backoff import pause_after
from pxrs_ray.errors import ConfigError
from pxrs_ray.late_dataclass import dataclass

# A pack's gap map needs at most a character a message, and has to fit into a row's detail.
PACK_RECORDS_MAX = 1_900


class Fate(StrEnum):
    """The result of a message in a round."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"


class Next(StrEnum):
    """What follows for a message: it is done; it is tried again in the next round; it is given up
    (the failure policy says how); or the round goes on waiting for it."""

    DONE = "done"
    AGAIN = "again"
    GIVE_UP = "give up"
    WAIT = "wait"


class SubmitStrategy(StrEnum):
    """BURST: all at once. BATCH: so many at once, then the next. The others: one at a time of each
    originator (key), of each tenant, or altogether."""

    BURST = "burst"
    BATCH = "batch"
    SEQUENTIAL_BY_ORIGINATOR = "sequential_by_originator"
    SEQUENTIAL_BY_TENANT = "sequential_by_tenant"
    SEQUENTIAL = "sequential"


class ProcessingStrategy(StrEnum):
    """See `TABLE`."""

    SKIP_ALL_FAILURES = "skip_all_failures"
    SKIP_ALL_FAILURES_AND_TIMED_OUT = "skip_all_failures_and_timed_out"
    RETRY_ALL = "retry_all"
    RETRY_FAILED = "retry_failed"
    RETRY_TIMED_OUT = "retry_timed_out"
    RETRY_FAILED_AND_TIMED_OUT = "retry_failed_and_timed_out"


_S = ProcessingStrategy
# Strategy: (what succeeded, what failed, what timed out). RETRY_ALL tries again what succeeded
# only in a round in which something did not.
TABLE: Mapping[ProcessingStrategy, tuple[Next, Next, Next]] = {
    _S.SKIP_ALL_FAILURES: (Next.DONE, Next.GIVE_UP, Next.WAIT),
    _S.SKIP_ALL_FAILURES_AND_TIMED_OUT: (Next.DONE, Next.GIVE_UP, Next.GIVE_UP),
    _S.RETRY_ALL: (Next.AGAIN, Next.AGAIN, Next.AGAIN),
    _S.RETRY_FAILED: (Next.DONE, Next.AGAIN, Next.GIVE_UP),
    _S.RETRY_TIMED_OUT: (Next.DONE, Next.GIVE_UP, Next.AGAIN),
    _S.RETRY_FAILED_AND_TIMED_OUT: (Next.DONE, Next.AGAIN, Next.AGAIN),
}


@dataclass(frozen=True, slots=True)
class PackRules:
    """How a pack is judged.

    `retries` rounds may follow the first one; 0 is unlimited. The pause before a retry is
    `pause_ms` and doubles up to `pause_ms_max`. `failure_percentage`: no retry follows a round in
    which more than this share of the pack's messages failed or timed out, counted against the whole
    pack as it was at first: repeating does not cure that much. 100 never stops.
    """

    strategy: ProcessingStrategy
    timeout_ms: int
    retries: int
    pause_ms: int
    pause_ms_max: int
    failure_percentage: float

    def __post_init__(self) -> None:
        if not (
            self.timeout_ms >= 1
            and self.retries >= 0
            and 0 <= self.pause_ms <= self.pause_ms_max
            and 0 <= self.failure_percentage <= 100
        ):
            raise ConfigError(
                "packs need timeout_ms >= 1, retries >= 0, 0 <= pause_ms <= pause_ms_max and a "
                f"failure_percentage of 0 to 100, got {self}"
            )

    def waits_for_late(self) -> bool:
        """Whether a message that takes longer than the pack's time is waited for."""
        return TABLE[self.strategy][2] is Next.WAIT

    def pause_before(self, retry: int) -> int:
        """How long to wait before retry number `retry`, in milliseconds; 1 is the first."""
        return pause_after(retry, self.pause_ms, self.pause_ms_max)


def judge(
    rules: PackRules, fates: Mapping[int, Fate], rounds: int, pack_records: int
) -> dict[int, Next]:
    """What follows for each message (by offset) after `rounds` rounds of a pack.

    `fates` has those that took part in the last round; the pack had `pack_records` at first.
    """
    bad = sum(fate is not Fate.SUCCEEDED for fate in fates.values())
    if not bad:
        return dict.fromkeys(fates, Next.DONE)
    row = dict(zip(Fate, TABLE[rules.strategy], strict=True))
    found = {offset: row[fate] for offset, fate in fates.items()}
    spent = rules.retries > 0 and rounds > rules.retries
    broken = bad * 100 > rules.failure_percentage * pack_records
    if spent or broken:
        last = {Fate.SUCCEEDED: Next.DONE, Fate.FAILED: Next.GIVE_UP, Fate.TIMED_OUT: Next.GIVE_UP}
        return {o: last[fates[o]] if n is Next.AGAIN else n for o, n in found.items()}
    return found
