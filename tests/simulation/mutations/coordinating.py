"""Guards of the coordinator: its door, its groups' faults, its start, and what it keeps."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

DOOR = "tests/unit/test_door.py"
FAULTS = "tests/actors/test_group_faults.py"
START = "tests/actors/test_coordinator_start.py"
CONFIG = "tests/unit/test_config.py"

COORDINATING: tuple[Mutation, ...] = (
    Mutation(
        "what no store keeps is refused before it is applied",
        (Change("group/group_coordinator.py", "        check_event(event)\n", ""),),
        tests=(f"{DOOR}::test_what_no_store_keeps_is_refused_at_the_door",),
    ),
    Mutation(
        "a cause is harmless before it is stored",
        (
            Change(
                "group/decision.py", "cause=harmless(cause[:CAUSE_CHARS_MAX])", "cause=cause[:500]"
            ),
        ),
        tests=(f"{DOOR}::test_a_cause_is_never_refused_and_shown_harmless",),
    ),
    Mutation(
        "the fields of a request are checked",
        (
            Change(
                "actors/coordinator/request_handlers.py",
                "        check_call(handler, arguments)\n",
                "",
            ),
        ),
        tests=(
            "tests/actors/test_calls_at_the_door.py::"
            "test_any_call_is_answered_by_a_pxrs_error_or_carried_out[SeekGroup]",
        ),
    ),
    Mutation(
        "passing trouble of a start is tried again",
        (Change("supervision/start_tries.py", "and passes(error):", "and False:"),),
        tests=(f"{START}::test_passing_trouble_heals_by_itself_while_everybody_waits",),
    ),
    Mutation(
        "an error of a start is not kept",
        (
            Change(
                "supervision/start_tries.py",
                "self._is_over = False, isinstance(error, NotFound)",
                "self._is_over = False, True",
            ),
        ),
        tests=(f"{START}::test_lasting_trouble_is_told_at_once_and_whoever_asks_next_tries_anew",),
    ),
    Mutation(
        "a buffer where a queue did not open is looked at anew",
        (
            Change(
                "topology/slot_table.py",
                "        self.look_anew(index)\n        self._unopened",
                "        self._unopened",
            ),
        ),
        tests=(f"{START}::test_the_pool_looks_anew_at_a_buffer_where_something_did_not_open",),
    ),
    Mutation(
        "recovery reads no variables",
        (
            Change(
                "config/document.py",
                "        found = PxrsConfig.of(said)\n",
                "        found = PxrsConfig(**said)\n",
            ),
        ),
        tests=(
            "tests/unit/test_config_document.py::"
            "test_variables_of_the_node_that_reads_change_nothing",
        ),
    ),
    Mutation(
        "the order of labels is a difference",
        (Change("config/queue_options.py", "        ordered=True,\n", ""),),
        tests=(f"{CONFIG}::test_labels_in_another_order_are_another_spread_and_are_refused",),
    ),
    Mutation(
        "a queue in memory stays there",
        (Change("config/queue_options.py", '        apart=("memory",),\n', ""),),
        tests=(f"{CONFIG}::test_no_queue_goes_from_memory_to_disk_or_back_while_it_runs",),
    ),
    Mutation(
        "a forgotten name begins above all that was forgotten",
        (Change("group/incarnations.py", "given.get(FLOOR, 0) if", "0 if"),),
        tests=("tests/unit/test_incarnations.py",),
    ),
    Mutation(
        "how much history is kept is taken at once",
        (
            Change(
                "actors/coordinator/coordinator.py",
                "                controller.follow(wanted)\n",
                "",
            ),
        ),
        tests=("tests/unit/test_live_options.py::test_history_keep_is_taken_at_once",),
    ),
    Mutation(
        "an assignor that cannot be imported is refused before anything is kept",
        (
            Change(
                "actors/coordinator/coordinator.py",
                "            check_assignor(group.assignor)\n",
                "            pass\n",
            ),
        ),
        tests=(
            "tests/unit/test_live_options.py::"
            "test_an_assignor_that_the_coordinator_cannot_import_is_refused",
        ),
    ),
    Mutation(
        "an own assignor that fails leaves its group to sticky",
        (
            Change(
                "group/custom_assignor.py",
                "        return None\n    _sup",
                "        raise\n    _sup",
            ),
        ),
        tests=("tests/unit/test_own_assignor.py",),
    ),
)
