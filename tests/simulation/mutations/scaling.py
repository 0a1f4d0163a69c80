"""Guards of scaling: when the load is believed, and whose number holds."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_SCALING = "tests/simulation/test_scaling.py::test_"
_ASKING = "tests/unit/test_retry_after.py::test_"
_LIMITS = "tests/unit/test_call_budget.py::test_"

SCALING = (
    Mutation(
        "nothing is advised while a buffer is away",
        (
            Change(
                "scaling/group_scaling.py",
                "        if len(ends) < group.partitions:\n            return\n",
                "        none = LogEnds(0, 0, 0, 0, None, None, 0, 0)\n"
                "        ends = {row.partition: ends.get(row.partition, none)"
                " for row in group.rows}\n",
            ),
        ),
        tests=(f"{_SCALING}nothing_is_advised_while_a_buffer_is_away",),
    ),
    Mutation(
        "a number set by hand holds against what the load said before",
        (
            Change(
                "scaling/group_scaling.py",
                "return advice.consumers if holds else wanted",
                "return advice.consumers",
            ),
        ),
        tests=(f"{_SCALING}what_the_load_said_before_does_not_undo_a_number_set_by_hand",),
    ),
    Mutation(
        "a message whose handler asks for time has not failed",
        (
            Change(
                "processing/key_ordered.py",
                "            self._pause(lane, now_ms + error.delay_ms)\n            return\n",
                "            item.attempts += 1\n"
                "            self._pause(lane, now_ms + error.delay_ms)\n            return\n",
            ),
        ),
        tests=(f"{_ASKING}other_keys_go_on_and_the_key_keeps_its_order",),
    ),
    Mutation(
        "in order too, what asks for time is not given up",
        (
            Change(
                "processing/in_order.py",
                "            self._pause_s = now_s + error.delay_ms / 1_000\n            return\n",
                "            self._pause_s = now_s + error.delay_ms / 1_000\n",
            ),
        ),
        tests=(f"{_ASKING}a_run_begins_again_at_the_message_that_waits",),
    ),
    Mutation(
        "no minute has more calls than the limit",
        (
            Change(
                "group/call_budget.py",
                "calls.per_ms = (calls_per_minute - calls.holds + 1) / MINUTE_MS",
                "calls.per_ms = (calls_per_minute + calls.holds) / MINUTE_MS",
            ),
        ),
        tests=(f"{_LIMITS}no_minute_has_more_calls_and_nearly_as_many_are_made",),
    ),
    Mutation(
        "what a dear call owes is paid before the next one",
        (
            Change(
                "group/call_budget.py",
                "            cost.level -= each\n",
                "            cost.level = max(0.0, cost.level - each)\n",
            ),
        ),
        tests=(f"{_LIMITS}what_a_minute_costs_is_bounded",),
    ),
)
