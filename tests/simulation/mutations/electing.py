"""Guards of who is elected when a leader is missed, and of what replicas that catch up may take."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_LEADER = "replication/slot_leader.py"


def _one(guard: str, file: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_replication.py::test_{test}"
    return Mutation(guard, (Change(file, text, instead),), tests=(where,))


def _placed(guard: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_placements.py::test_{test}"
    return Mutation(guard, (Change("replication/placements.py", text, instead),), tests=(where,))


ELECTING = (
    _placed(
        "a coordinator that was late itself takes nobody for gone by that",
        "- self._rules.heard_ms - self._lag.grace_ms(now_ms)",
        "- self._rules.heard_ms",
        "a_coordinator_that_was_late_itself_waits_for_as_much_longer_and_no_more",
    ),
    Mutation(
        "however late a coordinator was who is gone is missed",
        (
            Change(
                "replication/own_lag.py",
                "return min(self._window_ms, sum(late_ms for _, late_ms in self._late))",
                "return sum(late_ms for _, late_ms in self._late)",
            ),
        ),
        tests=(
            "tests/unit/test_replica_spread.py::"
            "test_however_late_a_coordinator_was_who_is_gone_is_missed",
        ),
    ),
    _one(
        "who catches up takes no more than there is room for",
        _LEADER,
        "may_ship = self._room.is_there(now_ms) or self._is_waited_for(disk)",
        "may_ship = True",
        "who_catches_up_is_sent_no_more_in_a_second_than_there_is_room_for",
    ),
    _one(
        "who is in sync waits for no room",
        _LEADER,
        "may_ship = self._room.is_there(now_ms) or self._is_waited_for(disk)",
        "may_ship = self._room.is_there(now_ms)",
        "who_is_in_sync_or_about_to_be_is_sent_all_at_once",
    ),
    _placed(
        "who may lead alone has answered since the leader was missed",
        "if missed is not None and asked_ms >= missed.since_ms:",
        "if missed is not None:",
        "who_answers_since_the_leader_was_missed_leads_with_who_lives_by_one_write",
    ),
    _placed(
        "what was answered before another leader was missed counts for nothing",
        "                del self._missed[slot]\n",
        "",
        "what_was_answered_before_another_leader_was_missed_counts_for_nothing",
    ),
    _placed(
        "who does not answer holds up no election",
        "return found if now_ms - missed.since_ms >= self._rules.answer_ms else None",
        "return None",
        "nobody_hears_of_an_election_before_it_is_durable",
    ),
)
