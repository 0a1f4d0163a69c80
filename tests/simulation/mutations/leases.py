"""Guards of leases: who is not heard works for nobody, and an answer counts from its question."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_HOST = "tests/actors/test_group_host.py::"
_OF_MEMBER = "tests/unit/test_lease_of_member.py::"
_CUT = "tests/actors/test_lease_in_process.py::"
_WORKS = f"{_CUT}test_a_cut_member_begins_and_reads_nothing_beyond_its_lease"
_OUTLIVES = f"{_CUT}test_a_call_that_outlives_the_lease_fails_nothing_and_writes_nothing"
SILENT_MEMBERS = ("consumer_freeze=10", "consumer_cut=10")

LEASES = (
    Mutation(
        "a lease that is over binds its member",
        (Change("group/member_lease.py", "return now_s > self.until_s", "return False"),),
        ("LeaseBinds",),
        SILENT_MEMBERS,
    ),
    Mutation(
        "a member's lease ends before its coordinator's",
        (
            Change(
                "group/member_lease.py",
                "sent_s + lease_s * (1 - MARGIN_PART)",
                "sent_s + lease_s * (1 + MARGIN_PART)",
            ),
        ),
        ("LeaseBinds",),
        SILENT_MEMBERS,
    ),
    Mutation(
        "a lease that was given is not shortened",
        (
            Change(
                "group/group_coordinator.py",
                "slot.until_ms = max(slot.until_ms, now.monotonic_ms + self.settings.lease_ms)",
                "slot.until_ms = now.monotonic_ms + self.settings.lease_ms",
            ),
        ),
        tests=("tests/unit/test_lease_of_member.py::test_a_lease_that_was_given_is_not_shortened",),
    ),
    Mutation(
        "a worker begins nothing when its lease is over",
        (
            Change(
                "actors/consumer/lease_view.py",
                "while time.monotonic() > self._begin_until_s:",
                "while self._begin_until_s < 0:",
            ),
        ),
        tests=(f"{_WORKS}[in order]",),
    ),
    Mutation(
        "an answer counts from when its question left",
        (
            Change(
                "actors/consumer/group_member.py",
                "self.lease.answered(sent_s, reply.lease_ms / 1_000)",
                "self.lease.answered(time.monotonic(), reply.lease_ms / 1_000)",
            ),
        ),
        tests=(f"{_CUT}test_an_answer_that_comes_late_gives_no_more_than_its_question_asked_for",),
    ),
    Mutation(
        "a heartbeat that waits renews no lease",
        (
            Change(
                "actors/coordinator/group_runtime.py",
                "look = partial(self.core.news, heartbeat, reply.lease_ms)",
                "look = partial(self.core.handle, heartbeat, self._clock.now())",
            ),
        ),
        tests=(f"{_HOST}test_a_heartbeat_that_waits_renews_no_lease_meanwhile",),
    ),
    Mutation(
        "a member without a lease is answered at once",
        (
            Change(
                "group/member_lease.py",
                "if self.until_s - now_s < self.length_s / 2:",
                "if False:",
            ),
        ),
        tests=(f"{_OF_MEMBER}test_a_heartbeat_waits_only_where_its_lease_outlasts_the_wait",),
    ),
    Mutation(
        "a failure without a lease is no failed attempt",
        (
            Change(
                "actors/consumer/worker.py",
                "return isinstance(error, NotHeld) or not self._shared.title()",
                "return False",
            ),
        ),
        tests=(f"{_OUTLIVES}[in order]",),
    ),
    Mutation(
        "a sink's block is not committed when the lease is over",
        (
            Change(
                "sink/transaction.py",
                "            _check_held(holds, place)\n            dialect.commit(connection)",
                "            dialect.commit(connection)",
            ),
        ),
        tests=("tests/actors/test_lease.py::test_a_block_whose_lease_ends_in_it_is_not_committed",),
    ),
    Mutation(
        "who is refused is not told to be heard while the registry is away",
        (
            Change(
                "actors/coordinator/group_runtime.py",
                'raise DeadlineExceeded(f"{refused}; that waits: {error}") from None',
                "raise",
            ),
        ),
        tests=(f"{_CUT}test_a_refusal_that_waits_for_the_registry_renews_no_lease",),
    ),
)
