"""Guards of what looks only at what has changed: what they forget would sleep for ever."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_UNIT = "tests/unit/test_growth.py::"
_MEMBER = "tests/unit/test_member.py::"
_INSIDE = "tests/actors/test_growth_in_process.py::"
_SESSION = "consumer/session.py"
_PLAN = "log/retention_plan.py"


def _one(guard: str, file: str, text: str, instead: str, test: str) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), tests=(test,))


SLEEPING = (
    _one(
        "a member at rest is woken by what is read",
        _SESSION,
        "if was_at_rest:\n            self.woken()",
        "pass",
        f"{_MEMBER}test_a_member_that_has_nothing_to_commit_sleeps_until_something_is_read",
    ),
    _one(
        "a partition whose worker notes more than its checkpoint is not at rest",
        _SESSION,
        "elif held.fetched <= done.checkpoint and not done.detail:",
        "elif held.fetched <= done.checkpoint:",
        f"{_MEMBER}test_a_member_whose_worker_notes_more_than_its_checkpoint_goes_on_looking",
    ),
    _one(
        "a read waits at its buffer for less than its answer is awaited",
        "consumer/fetch_plan.py",
        "FETCH_WAIT_MOST_MS = 16_000",
        "FETCH_WAIT_MOST_MS = 64_000",
        "tests/unit/test_member_reading.py::"
        "test_a_buffer_that_has_nothing_is_asked_more_rarely_until_something_comes",
    ),
    _one(
        "retention that failed is in the next round",
        _PLAN,
        "log.retain_at_ms(now_ms) if log.retentions != retentions else now_ms",
        "log.retain_at_ms(now_ms)",
        f"{_UNIT}test_retention_that_failed_is_tried_in_the_next_round",
    ),
    _one(
        "a log that failed is noted as changed",
        "log/retained.py",
        "self._failed = self._failure(what, error)\n        self._changed()",
        "self._failed = self._failure(what, error)",
        f"{_UNIT}test_a_mend_looks_at_logs_that_changed_and_finds_each_that_failed",
    ),
    _one(
        "an older answer about ends replaces no newer one",
        "log/ends_heard.py",
        "elif answer.to < self._to:",
        "elif False:",
        f"{_INSIDE}test_a_status_hears_of_logs_that_have_changed_and_knows_the_others",
    ),
    _one(
        "a status hears of an epoch that a reader has shown",
        "log/read_fence.py",
        "            self.tell_changed((queue, partition))\n        if self._lines",
        "        if self._lines",
        f"{_INSIDE}test_a_status_hears_of_logs_that_have_changed_and_knows_the_others",
    ),
    _one(
        "the ends that another life of a buffer told are not taken for this one's",
        "actors/buffer/serving_state.py",
        "since = since if heard == self._incarnation else 0",
        "since = since if heard else 0",
        f"{_INSIDE}test_a_ping_tells_the_ends_that_its_coordinator_has_not_heard",
    ),
    _one(
        "a worker that sleeps ends when it is told to",
        "actors/consumer/worker.py",
        "            self._wake.notify_all()\n        self._awake()\n\n    @property",
        "            self._wake.notify_all()\n\n    @property",
        f"{_INSIDE}test_a_partition_without_messages_has_no_thread_and_is_handed_back_all_the_same",
    ),
)
