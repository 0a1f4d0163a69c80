"""Guards of leases: who is not heard works for nobody, and an answer counts from its question."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_HOST = "tests/actors/test_group_host.py::"
_OF_MEMBER = "tests/unit/test_lease_of_member.py::"
_CUT = "tests/actors/test_lease_in_process.py::"
_WORKS = f"{_CUT}test_a_cut_member_begins_and_reads_nothing_beyond_its_lease"
_OUTLIVES = f"{_CUT}test_a_call_that_outlives_the_lease_fails_nothing_and_writes_nothing"
SILENT_MEMBERS = ("consumer_freeze=10", "consumer_cut=10")
_BETWEEN = "tests/actors/test_message_path.py::test_between_two_messages_of_a_batch_nothing_begins_"

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
                "known.until_ms = max(known.until_ms, now.monotonic_ms + self.settings.lease_ms)",
                "known.until_ms = now.monotonic_ms + self.settings.lease_ms",
            ),
        ),
        tests=("tests/unit/test_lease_of_member.py::test_a_lease_that_was_given_is_not_shortened",),
    ),
    Mutation(
        "a worker begins nothing when its lease is over",
        (
            Change(
                "actors/consumer/lease_view.py",
                "while time.monotonic() > self.begin_until_s:",
                "while self.begin_until_s < 0:",
            ),
        ),
        tests=(f"{_WORKS}[in order]",),
    ),
    Mutation(
        "a handler's next message of the same batch asks for the lease too",
        (
            Change(
                "actors/consumer/sequential_worker.py",
                "if now_s() > lease.begin_until_s or self._is_ending:",
                "if self._is_ending:",
            ),
        ),
        tests=(f"{_BETWEEN}when_the_lease_is_over[plain]",),
    ),
    Mutation(
        "a handler's next message of the same batch is not begun when its worker stops",
        (
            Change(
                "actors/consumer/sequential_worker.py",
                "if at_s > lease.begin_until_s or self._is_ending:",
                "if at_s > lease.begin_until_s:",
            ),
        ),
        tests=(f"{_BETWEEN}after_a_stop[async]",),
    ),
    Mutation(
        "a message that somebody keeps is not filled with another",
        (
            Change(
                "consumer/delivery.py",
                "next_one if references(next_one) == OURS_ALONE else make()",
                "next_one",
            ),
        ),
        tests=(
            "tests/actors/test_message_path.py::"
            "test_whoever_keeps_a_message_in_any_way_keeps_that_message",
        ),
    ),
    Mutation(
        "an answer counts from when its question left",
        (
            Change(
                "consumer/member_machine.py",
                "self.lease.answered(ask.sent_s, reply.lease_ms / 1_000)",
                "self.lease.answered(now_s, reply.lease_ms / 1_000)",
            ),
        ),
        ("LeaseBinds",),
        SILENT_MEMBERS,
    ),
    Mutation(
        "who carries a heartbeat says when it left",
        (
            Change(
                "consumer/member_machine.py",
                "return Ask(self.session, request, now_s, self.lease.length_s / 2, hold_ms)",
                "return Ask(self.session, request, now_s + 9, self.lease.length_s / 2, hold_ms)",
            ),
        ),
        tests=(f"{_CUT}test_an_answer_that_comes_late_gives_no_more_than_its_question_asked_for",),
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
                "        _check_held(self._holds, place)\n        yield from ask(dialect.commit",
                "        yield from ask(dialect.commit",
            ),
        ),
        tests=("tests/actors/test_lease.py::test_a_block_whose_lease_ends_in_it_is_not_committed",),
    ),
)
