"""Guards of the calls of a partition of which many messages are in work; see `CallTurns`."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_CALLERS = "tests/actors/test_callers.py::"
_TURNS = "tests/unit/test_call_turns.py::test_"
LANES = ("lanes=4",)


def _turns(guard: str, text: str, instead: str, test: str) -> Mutation:
    changes = (Change("processing/call_turns.py", text, instead),)
    return Mutation(guard, changes, tests=(f"{_TURNS}{test}",))


def _apart(guard: str, text: str, instead: str, test: str) -> Mutation:
    changes = (Change("processing/call_apart.py", text, instead),)
    return Mutation(guard, changes, tests=(f"{_TURNS}{test}",))


CALLING = (
    Mutation(
        "what was never begun is not done",
        (Change("processing/call_apart.py", "return NOT_BEGUN\n", "return None\n"),),
        ("CheckpointsCovered", "NothingLost"),
        LANES,
    ),
    Mutation(
        "what could not be put aside is not done",
        (
            Change(
                "processing/call_apart.py",
                "        return went.error\n    suspect",
                "        return None\n    suspect",
            ),
        ),
        ("CheckpointsCovered", "NothingLost"),
        LANES,
        first_seed=30,
    ),
    Mutation(
        "a special call too begins under the lease",
        (
            Change(
                "processing/call_apart.py",
                "(yield LEASE) and (yield PLACE) and (yield LEASE) and",
                "(yield PLACE) and",
            ),
        ),
        ("LeaseBinds",),
        LANES,
        first_seed=30,
    ),
    _apart(
        "the lease is looked at once more when a call has its place",
        "(yield PLACE) and (yield LEASE) and",
        "(yield PLACE) and",
        "a_call_that_waited_for_its_place_asks_for_the_lease_again",
    ),
    _apart(
        "a call that ended with our time is begun again",
        "        if not went.void:\n",
        "        if True:\n",
        "a_call_that_ended_with_our_time_is_made_again",
    ),
    _turns(
        "no more is taken than there are slots",
        "self.slots + self._ahead - self._busy",
        "self.slots + self._ahead",
        "no_more_is_taken_than_there_are_slots",
    ),
    _turns(
        "nothing more is taken when every slot has a call that never returned",
        "        if self.left_alone >= self.slots:\n            return\n",
        "",
        "calls_that_never_return_halt_it_when_they_have_all_slots",
    ),
    _turns(
        "what ended too late is not told again",
        "        if task.over:\n            self.left_alone -= 1\n",
        "        if task.over:\n            self.scheduler.ended(task, error, now_ms)\n"
        "            self.left_alone -= 1\n",
        "a_call_that_was_left_alone_counts_no_more_and_frees_its_slot",
    ),
    _turns(
        "a call that was left alone frees its slot when it ends",
        "        if task.over:\n            self.left_alone -= 1\n",
        "        if task.over:\n",
        "a_call_that_was_left_alone_counts_no_more_and_frees_its_slot",
    ),
    _turns(
        "what was never begun does not count as failed",
        "if error is None or error is NOT_BEGUN:",
        "if error is None:",
        "what_was_never_begun_does_not_count_as_failed",
    ),
)
