"""Guards around what a topology is made of: beginnings, lost registries, ends."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_BEGINNING = "tests/unit/test_group_beginning.py::"
_RESTORED = "tests/unit/test_restored_registry.py::"
_REMOVING = "tests/unit/test_removing.py::"
_NET = "tests/faults/test_control.py::test_every_fault_at_every_step"

CONTROL = (
    Mutation(
        "a group's start position is in the step that makes it",
        (
            Change("topology/group_making.py", "checkpoint=checkpoint)", "checkpoint=0)"),
            Change("topology/group_making.py", "    yield from _settle(rows, found)\n", ""),
        ),
        tests=(
            f"{_BEGINNING}test_a_group_begins_at_the_end_though_its_coordinator_died_at_each_step",
            f"{_NET}[a group begins at the end]",
        ),
    ),
    Mutation(
        "one caller at a time makes a group",
        (
            Change(
                "actors/coordinator/group_creation.py",
                "            async with self._changing:\n"
                "                if full_name not in self._groups:\n"
                "                    await self._make_group(name, queue, options)",
                "            await self._make_group(name, queue, options)",
            ),
        ),
        tests=(f"{_BEGINNING}test_two_who_make_a_group_at_once_make_one",),
    ),
    Mutation(
        "half a start position is none",
        (Change("topology/group_making.py", "    if missing:\n", "    if False:\n"),),
        tests=(f"{_BEGINNING}test_a_buffer_that_is_away_lets_no_group_begin_half_at_the_end",),
    ),
    Mutation(
        "a log that has seen a higher epoch halts the group",
        (
            Change(
                "topology/log_witness.py",
                "        if not behind:\n",
                "        if True:\n",
            ),
        ),
        tests=(f"{_RESTORED}test_without_a_note_the_logs_are_the_witness",),
    ),
    Mutation(
        "an accepted registry goes on above the epochs that the logs know",
        (
            Change(
                "topology/log_witness.py",
                "            if behind:\n",
                "            if False:\n",
            ),
        ),
        tests=(
            f"{_RESTORED}test_a_restored_backup_is_refused_and_accepted_by_the_command_that_is_named",
        ),
    ),
    Mutation(
        "logs of another registry are not taken for one's own",
        (
            Change(
                "actors/coordinator/group_creation.py",
                "        if not self.accepts_loss:\n            raise",
                "        if False:\n            raise",
            ),
        ),
        tests=(f"{_RESTORED}test_an_emptied_registry_is_no_new_topology",),
    ),
    Mutation(
        "a reader that its log refuses is granted its partition anew",
        (Change("actors/coordinator/member_api.py", "        if ours:\n", "        if False:\n"),),
        tests=(f"{_RESTORED}test_a_reader_that_its_log_refuses_is_granted_its_partition_anew",),
    ),
    Mutation(
        "the epochs of a removed group are never given out again",
        (Change("topology/tombstones.py", "epoch=max(self.epoch, epoch)", "epoch=0"),),
        tests=(f"{_REMOVING}test_a_removed_group_leaves_nothing_and_its_epochs_never_come_back",),
    ),
    Mutation(
        "a queue made anew under an old name is another",
        (
            Change(
                "topology/tombstones.py",
                "lives = {**self.lives, queue: life + 1}",
                "lives = self.lives",
            ),
        ),
        tests=(f"{_NET}[a queue is deleted]",),
    ),
    Mutation(
        "a restored registry takes no new queue for the old one",
        (Change("actors/coordinator/group_creation.py", "self._high_water.life(queue))", "0)"),),
        tests=(f"{_RESTORED}test_a_queue_that_was_made_anew_since_the_backup_stays_another",),
    ),
    Mutation(
        "an accepted registry goes on under the identity of its logs",
        (
            Change(
                "actors/coordinator/bootstrap.py",
                "made = self._high_water.topology_id or uuid.uuid4().hex",
                "made = uuid.uuid4().hex",
            ),
        ),
        tests=(
            f"{_RESTORED}"
            "test_an_emptied_registry_that_is_accepted_goes_on_under_the_identity_of_its_logs",
        ),
    ),
    Mutation(
        "a queue is removed with what is known of its feeds",
        (
            Change(
                "actors/coordinator/deletion.py",
                "for log in (queue, feeds_of(queue), streams_of(queue)):",
                "for log in (queue,):",
            ),
        ),
        tests=(f"{_NET}[a queue is deleted]",),
    ),
    Mutation(
        "a log that is being opened anew is told that a group is gone",
        (
            Change(
                "log/log_manager.py",
                "left = error if passes(error) else left",
                "pass",
            ),
        ),
        tests=(
            "tests/faults/test_files.py::"
            "test_a_group_is_not_removed_while_a_log_that_knows_it_is_being_opened_anew",
        ),
    ),
    Mutation(
        "what a disk refused to forget is forgotten by itself",
        (
            Change(
                "actors/coordinator/buffer_calls.py",
                "for index in failed if again else ():",
                "for index in ():",
            ),
        ),
        tests=(f"{_REMOVING}test_what_a_disk_refuses_to_forget_is_forgotten_when_it_goes_again",),
    ),
    Mutation(
        "a topology's folder that cannot be removed is told",
        (Change("actors/coordinator/deletion.py", "if pause_s is None:", "if False:"),),
        tests=(
            f"{_REMOVING}test_a_folder_that_cannot_be_removed_is_told_and_goes_with_the_next_call",
        ),
    ),
    Mutation(
        "what could not be removed is removed when its buffer is back",
        (
            Change(
                "actors/coordinator/bootstrap.py",
                "        async with self._changing:\n            await self._try_to_finish()\n",
                "",
            ),
        ),
        tests=(f"{_REMOVING}test_a_buffer_that_is_away_gets_its_part_when_it_is_back",),
    ),
    Mutation(
        "a configuration that was cut off is applied again",
        (Change("topology/applying.py", "return differs or self._is_half", "return differs"),),
        tests=(f"{_REMOVING}test_a_configuration_that_was_cut_off_is_applied_again",),
    ),
)
