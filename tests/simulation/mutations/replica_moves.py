"""Guards of where replicas are: how they come to other disks, and are let go of."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_PLACEMENT = "replication/placement.py"
_STORIES = "tests/unit/test_replication.py::test_"


def _one(guard: str, file: str, text: str, instead: str, test: str) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), tests=(f"{_STORIES}{test}",))


def _placed(guard: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_placements.py::test_{test}"
    return Mutation(guard, (Change("replication/placements.py", text, instead),), tests=(where,))


def _moved(guard: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_replica_moves.py::test_{test}"
    file = "topology/replica_moves.py"
    return Mutation(guard, (Change(file, text, instead),), tests=(where,))


def _spread(guard: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_placements.py::test_{test}"
    return Mutation(guard, (Change("topology/replica_spread.py", text, instead),), tests=(where,))


REPLICA_MOVES = (
    _moved(
        "what was replaced goes once all replicas are in sync",
        "if len(placement.isr) == len(placement.replicas) >= wanted:",
        "if True:",
        "what_a_disk_has_that_was_replaced_is_left_behind_once_all_replicas_are_in_sync",
    ),
    _spread(
        "replicas begin in places of their own",
        "(n.place(spread_by) in taken, *_load(n, load, has))",
        "_load(n, load, has)",
        "replicas_are_in_zones_of_their_own_as_far_as_there_are_as_many",
    ),
    Mutation(
        "one that is lost is replaced in a place that has none",
        (
            Change(
                "topology/replica_spread.py",
                "(n.place(spread_by) in taken, n.disk not in begun, *_load(n, has))",
                "(n.disk not in begun, *_load(n, has))",
            ),
        ),
        tests=(
            "tests/unit/test_replica_spread.py::"
            "test_one_that_is_lost_is_replaced_in_a_zone_that_has_none",
        ),
    ),
    _moved(
        "of replicas that are too many one goes whose place has another",
        "d in living, -shares[d], -has[d], d)",
        "d in living, -has[d], d)",
        "of_replicas_that_are_too_many_one_goes_whose_zone_has_another",
    ),
    Mutation(
        "a slot that has a homes document behind its placement is at home where it is led from",
        (Change("topology/replica_spread.py", "known.term < placement.epoch", "False"),),
        tests=(
            "tests/unit/test_replica_spread.py::"
            "test_who_was_elected_is_at_home_there_though_the_document_of_homes_came_late",
        ),
    ),
    _moved(
        "a replica that leaves its disk has another one lead before anything is copied",
        "if placement.leader not in stay:",
        "if False:",
        "a_drained_leader_is_followed_by_another_before_anything_is_copied",
    ),
    _moved(
        "a replica that lives is let go of when all others are in sync",
        "if is_lost or all(placement.in_sync(each) is not None for each in needed):",
        "if True:",
        "a_drained_replica_stays_until_the_new_one_is_in_sync",
    ),
    _moved(
        "nothing is moved while the leader's process is not heard",
        "if leads is None or leads.life != placement.life:",
        "if leads is None:",
        "nothing_is_done_while_all_are_where_they_are_to_be_or_nobody_leads",
    ),
    _moved(
        "a disk that answers is not taken for lost",
        "away = {disk for disk in wanted.overdue if disk not in living}",
        "away = set(wanted.overdue)",
        "one_that_is_lost_is_waited_for_by_nobody",
    ),
    Mutation(
        "a process that was looked at since keeps its logs, whoever dismisses it",
        (
            Change(
                "replication/retirement.py",
                "return (generation, asked_ms) > self._looked",
                "return True",
            ),
        ),
        tests=(
            "tests/unit/test_replica_moves.py::"
            "test_a_process_that_was_looked_at_since_it_was_dismissed_stays",
        ),
    ),
    Mutation(
        "the next coordinator counts on for how long a disk is away",
        (
            Change(
                "topology/away_disks.py",
                "self._counted_ms: dict[Disk, int] = dict(noted)",
                "self._counted_ms: dict[Disk, int] = {}",
            ),
        ),
        tests=(
            "tests/unit/test_replica_moves.py::"
            "test_what_was_counted_is_noted_in_steps_and_counted_on_by_the_next",
        ),
    ),
    Mutation(
        "a replica that was let go of and placed again asks its leader anew where it stands",
        (
            Change(
                "replication/slot_replica.py",
                "if is_newer and placement.in_sync(self.who.disk) is None:",
                "if False:",
            ),
        ),
        tests=(
            "tests/actors/test_replica_places.py::"
            "test_the_number_of_replicas_and_the_least_in_sync_change_while_appends_go_on",
        ),
    ),
    _placed(
        "what a process answered before it was dismissed does not count",
        "if asked_ms <= self._dismissed_ms.get((slot, disk), -1):",
        "if False:",
        "what_a_process_answered_before_it_was_dismissed_does_not_count",
    ),
    _placed(
        "disks change as they were seen, or not",
        "if placement.version != version or len(set(replicas)) < len(replicas):",
        "if False:",
        "a_slot_leaves_a_disk_once_that_does_not_lead_and_only_as_it_was_seen",
    ),
    _one(
        "a process that began since is not let in for what the one before it had",
        _PLACEMENT,
        "if found.life != lives.get(member.disk):",
        "if False:",
        "kip_903_a_process_that_began_since_is_not_let_in_for_what_the_one_before_it_had",
    ),
)
