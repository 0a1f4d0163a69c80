"""Guards of who may serve: leases, terms, and whose disk, log and registry it is."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_IDS = "tests/unit/test_log_ids.py::"
_TENURE = "tests/unit/test_log_tenure.py::"
_BUFFER = "tests/actors/test_buffer_lease.py::"
_WORLD = "tests/unit/test_leases_of_buffers.py::"
_DISK = "tests/unit/test_disk_id.py"


def _one(guard: str, file: str, text: str, instead: str, *tests: str) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), tests=tests)


TENURE = (
    _one(
        "a log of another id is not ours",
        "log/log_opening.py",
        'elif log_id and found.log_id not in ("", log_id):',
        "elif False:",
        f"{_IDS}test_another_log_in_its_place_stands_still_untouched_until_that_is_accepted",
    ),
    _one(
        "a log that is not here is lost, also at checkpoint 0",
        "log/partition_log.py",
        "absent = self._waiting == NEW and not make",
        "absent = False",
        f"{_IDS}test_a_log_that_is_not_here_is_lost_though_nobody_had_read_it",
    ),
    _one(
        "a log serves nobody before its coordinator has said how far it came",
        "log/open_logs.py",
        "if self._unconfirmed and (queue, partition) in self._unconfirmed:",
        "if False:",
        f"{_IDS}test_a_log_with_an_id_serves_nobody_before_its_coordinator_has_spoken",
    ),
    _one(
        "how far the logs came is known beyond the checkpoints",
        "actors/coordinator/group_creation.py",
        "ends = self._pool.known_ends.of(spec.queue_id)",
        "ends: dict[PartitionId, Offset] = {}",
        f"{_WORLD}test_what_nobody_had_read_is_lost_and_never_new_when_its_disk_is",
    ),
    _one(
        "a lease is needed to append",
        "log/buffer_calls.py",
        "        if not is_open:\n            self._refuse()",
        "        if False:\n            self._refuse()",
        f"{_BUFFER}test_without_a_lease_nothing_is_served_and_whoever_asks_may_try_again",
    ),
    _one(
        "a lease is needed to acknowledge",
        "log/buffer_calls.py",
        "if is_open and term == self._term:",
        "if True:",
        f"{_BUFFER}test_an_append_whose_lease_ends_before_its_sync_is_not_acknowledged",
    ),
    _one(
        "a lease is needed to hand on what was read",
        "log/buffer_calls.py",
        "        if is_open:\n            self._was_open = True",
        "        if True:\n            self._was_open = True",
        f"{_BUFFER}test_what_was_read_while_the_lease_ended_is_not_handed_on",
    ),
    _one(
        "a lease runs from the echo on, and not from its arrival",
        "log/lease_term.py",
        "min(grant.echo_ms, now_ms) + grant.lease_ms",
        "now_ms + grant.lease_ms",
        f"{_TENURE}test_it_begins_without_a_lease_and_has_one_from_the_echo_on",
    ),
    _one(
        "a coordinator or a term that is over grants nothing",
        "log/lease_term.py",
        "if granted < known:",
        "if False:",
        f"{_TENURE}test_who_is_older_gives_nothing",
    ),
    _one(
        "a lease is of the process that read its clock",
        "log/lease_term.py",
        "if grant.incarnation == self._incarnation:",
        "if True:",
        f"{_TENURE}test_a_reading_of_another_process_is_no_lease",
    ),
    _one(
        "only who was confirmed as the leading one prolongs a lease",
        "log/lease_grants.py",
        "slot.confirmed = reading",
        "slot.confirmed = slot.newest",
        f"{_TENURE}test_only_what_came_before_the_registry_was_asked_is_sent_back",
    ),
    _one(
        "a process whose logs nobody has looked at gets no lease",
        "log/lease_grants.py",
        "if not echo.incarnation or echo.incarnation != slot.allowed:",
        "if not echo.incarnation:",
        f"{_TENURE}test_only_what_came_before_the_registry_was_asked_is_sent_back",
    ),
    _one(
        "a buffer serves on its own disk alone",
        "log/buffer_life.py",
        "return self.here == self.disk_id and not self.is_open",
        "return not self.is_open",
        f"{_BUFFER}test_a_buffer_on_another_disk_serves_nothing_and_leaves_it_as_it_is",
    ),
    _one(
        "the id of a disk is on it before it has its name",
        "log/disk_id.py",
        "                files.sync(fd)\n",
        "",
        _DISK,
    ),
    _one(
        "who is second finds the id of the first",
        "log/disk_id.py",
        "files.link(temporary, data_dir / NAME)",
        "files.rename(temporary, data_dir / NAME)",
        _DISK,
    ),
    _one(
        "a coordinator that is not above what a slot has seen has a registry that went back",
        "log/identity.py",
        "known.generation > self.generation",
        "False",
        f"{_WORLD}test_a_registry_that_went_back_is_noticed_by_the_logs_alone",
    ),
)
