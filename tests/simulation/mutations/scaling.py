"""Guards of scaling: when the load is believed, and whose number holds."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_SCALING = "tests/simulation/test_scaling.py::test_"

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
)
