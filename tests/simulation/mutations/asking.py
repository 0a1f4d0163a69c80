"""Guards of whom a client of the coordinator asks again, for how long, and what is no answer."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_TRIES = "supervision/request_tries.py"
_UNIT = "tests/unit/test_request_tries.py::"

ASKING = (
    Mutation(
        "who asked a process that has ended looks its name up",
        (Change(_TRIES, 'known."""\n        self._known.in_doubt = True', 'known."""'),),
        ("ComesToRest",),
        ("coordinator_crash=10",),
    ),
    Mutation(
        "the word of a coordinator that was replaced is no answer",
        (
            Change(
                _TRIES,
                'another one leads."""\n        self._known.in_doubt = True',
                'another one leads."""',
            ),
        ),
        tests=(f"{_UNIT}test_the_word_of_a_deposed_one_is_none_and_the_name_is_looked_up_again",),
    ),
    Mutation(
        "nothing is asked of a coordinator after its deadline",
        (Change(_TRIES, "if fault.late or left_s <= 0:", "if fault.late:"),),
        tests=(f"{_UNIT}test_nothing_is_made_after_the_deadline",),
    ),
    Mutation(
        "while names cannot be looked up the last known coordinator is asked",
        (
            Change(
                _TRIES,
                "if self._known.actor is None:\n            self._failed(why)",
                "if True:\n            self._failed(why)",
            ),
        ),
        tests=(f"{_UNIT}test_while_names_cannot_be_looked_up_the_last_known_one_is_asked",),
    ),
)
