"""Guards of replicated logs where actors host them."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation


def _kept(guard: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_replica_logs.py::test_{test}"
    return Mutation(guard, (Change("log/replica_logs.py", text, instead),), tests=(where,))


def _shell(guard: str, file: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/actors/test_replicas_in_process.py::test_{test}"
    return Mutation(guard, (Change(file, text, instead),), tests=(where,))


_PLACEMENTS = "tests/unit/test_placements.py::test_"


def _healed(guard: str, file: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/actors/test_replicas_healed.py::test_{test}"
    return Mutation(guard, (Change(file, text, instead),), tests=(where,))


def _scrubbed(guard: str, text: str, instead: str, test: str) -> Mutation:
    where = f"tests/unit/test_scrub.py::test_{test}"
    return Mutation(guard, (Change("log/scrub.py", text, instead),), tests=(where,))


_DROPS = (
    "tests/unit/test_replica_moves.py::"
    "test_a_damaged_log_is_dropped_by_none_that_leads_is_in_sync_or_taken_for_whole"
)
_RETIREMENT = "replication/retirement.py"

REPLICAS_HOSTED = (
    _scrubbed(
        "what is found damaged is looked at once more",
        "                except LogCorrupted:\n                    return True\n",
        "                except LogCorrupted:\n                    return False\n",
        "each_damaged_segment_is_found_once_a_round",
    ),
    _scrubbed(
        "a segment is read to its end",
        "            self._at = _At(at.place, at.base_offset, read_to)\n",
        "            pass\n",
        "each_damaged_segment_is_found_once_a_round",
    ),
    _scrubbed(
        "the one that is damaged is not read for ever",
        "        self._at = _At(at.place, at.base_offset + 1)\n",
        "        self._at = at\n",
        "each_damaged_segment_is_found_once_a_round",
    ),
    Mutation(
        "a damaged log is dropped by none that is in sync",
        (Change(_RETIREMENT, "        and placement.in_sync(me) is None\n", ""),),
        tests=(_DROPS,),
    ),
    Mutation(
        "a damaged log is dropped by none that its coordinator takes for whole",
        (Change(_RETIREMENT, "        and me in absent\n", ""),),
        tests=(_DROPS,),
    ),
    Mutation(
        "what replicas say goes over a line where there is one",
        (
            Change(
                "actors/buffer/replica_peers.py",
                "        if line is not None:\n",
                "        if False:\n",
            ),
        ),
        tests=(
            "tests/actors/test_replica_lines.py::"
            "test_a_line_carries_it_in_order_and_ray_what_comes_before_and_after",
        ),
    ),
    _healed(
        "who has a damaged log is not taken for whole",
        "actors/buffer/replica_host.py",
        "lacks = bool(self.over or missing or self._logs.damaged)",
        "lacks = bool(self.over or missing)",
        "a_damaged_log_is_dropped_and_taken_from_the_others_while_appends_go_on",
    ),
    _kept(
        "a log that is gone here is not begun anew while this replica counts as in sync",
        "if absent and place in self._expected and place not in self._to_make:",
        "if False:",
        "a_log_that_is_gone_is_missing_until_it_is_to_be_made",
    ),
    _kept(
        "a log of a replica that failed is not opened anew beside what others know of it",
        '        self.ends_with(f"{log.folder}: it failed")\n',
        "        super()._leave(place, log)\n",
        "a_log_that_failed_ends_the_replica_and_is_not_opened_anew",
    ),
    _kept(
        "a follower drops nothing by itself",
        "return super().to_retain(now_ms) if self.may_retain() else []",
        "return super().to_retain(now_ms)",
        "retention_is_the_leaders",
    ),
    _shell(
        "a life of a producer is known to all that may lead next",
        "actors/buffer/replica_buffer.py",
        "            await self._replica.spread(found)\n",
        "",
        "a_life_of_a_producer_is_known_to_whoever_leads_next",
    ),
    _shell(
        "a silent leader is ended when another one is elected",
        "actors/coordinator/replica_controller.py",
        "            self._end(slot, home.disk)\n",
        "            pass\n",
        "a_silent_leader_is_ended_when_another_one_is_elected",
    ),
    _shell(
        "a new leader serves nobody before it knows all that a leader has to know",
        "actors/buffer/replica_lead.py",
        "        return bool(term) and term == self.leads == self._settled and self.is_ready\n",
        "        return bool(term) and term == self.leads\n",
        "a_new_leader_serves_nobody_before_it_knows_all_that_it_has_to",
    ),
    _shell(
        "what a leader serves by is prepared while it learns that it leads",
        "actors/coordinator/replica_controller.py",
        "        if placement.leader in living and self._served.get(slot) != placement.epoch:\n",
        "        if False:\n",
        "a_leader_is_prepared_while_it_learns_and_serves_nobody_before_it_knows_what_is_safe",
    ),
    _shell(
        "one write says who leads and who is in sync",
        "actors/coordinator/replica_controller.py",
        "                        self._tell_one(slot, disk)\n",
        "                        pass\n",
        "one_write_says_who_leads_and_that_the_dead_one_is_not_in_sync",
    ),
    _healed(
        "who starts again leaves the processors to who was elected in its place",
        "actors/coordinator/replica_controller.py",
        "        return is_served or not others\n",
        "        return True\n",
        "who_starts_again_leaves_the_processors_to_who_was_elected",
    ),
    _shell(
        "an append that waits for min_isr goes on as soon as there are as many",
        "actors/buffer/replica_host.py",
        "        is_open = (self.is_ready, self.takes)\n",
        "        is_open = (self.is_ready, False)\n",
        "an_append_that_waits_for_min_isr_goes_on_as_soon_as_there_are_as_many",
    ),
    Mutation(
        "what a silent replica has not answered goes to whoever leads",
        (
            Change(
                "actors/client/append_calls.py",
                "            if call.buffer == buffer and flight.client not in (None, leads):\n",
                "            if False:\n",
            ),
        ),
        tests=(
            "tests/unit/test_appends_follow_the_leader.py::"
            "test_what_a_silent_replica_does_not_answer_goes_to_whoever_leads",
        ),
    ),
    Mutation(
        "a slot whose loss is accepted goes on with one that is in sync before any other",
        (
            Change(
                "replication/placements.py",
                "        able.sort(key=lambda disk: placement.in_sync(disk) is None)\n",
                "",
            ),
        ),
        tests=(f"{_PLACEMENTS}a_slot_goes_on_with_one_that_is_in_sync_before_any_other",),
    ),
    Mutation(
        "what is made must be on those that may lead next",
        (
            Change(
                "replication/placements.py",
                "placement.in_sync(disk) is not None for disk in followers",
                "False for disk in followers",
            ),
        ),
        tests=(f"{_PLACEMENTS}what_is_made_must_be_on_those_that_may_lead_next",),
    ),
)
