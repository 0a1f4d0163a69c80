"""Guards around who is dead and who only silent: outages, freezes, orphans, answers."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_AWAY = "tests/actors/test_registry_away.py::"
_LIVE = f"{_AWAY}test_consumers_that_live_keep_all_they_have_through_an_outage_with_a_change_in_it"
_CHANGES = "tests/actors/test_changes.py::"
_FROZEN = "tests/unit/test_frozen.py::"
_WATCHDOG = "tests/actors/test_watchdog.py::"

AWAY = "tests/unit/test_away_time.py"

LIVENESS = (
    Mutation(
        "a clock that is set gives no host up",
        (
            Change(
                "topology/home_rounds.py",
                "        overdue = self._away.overdue(self.homes)\n",
                "        after_ms, now_ms = self._away._replace_after(), self._wall_ms()\n"
                "        overdue = frozenset(\n"
                "            slot\n"
                "            for slot, home in self.homes.slots.items()\n"
                "            if after_ms is not None and home.away_since_ms is not None\n"
                "            and now_ms - home.away_since_ms >= after_ms\n"
                "        )\n",
            ),
        ),
        tests=("tests/simulation/test_homes.py::test_a_clock_that_is_set_gives_no_host_up",),
    ),
    Mutation(
        "a heartbeat does not wait for the registry",
        (
            Change(
                "actors/coordinator/member_api.py",
                "wait_s = min(wait_ms / 1_000, lease_s * WAIT_PART_MOST)",
                "wait_s = 9.0",
            ),
        ),
        tests=(f"{_AWAY}test_a_heartbeat_is_answered_from_memory_while_writes_wait",),
    ),
    Mutation(
        "a change in a known outage is refused",
        (
            Change(
                "actors/coordinator/commands.py",
                "if away_ms is not None and self._changes.refuses(away_ms):",
                "if away_ms is None and self._changes.refuses(away_ms):",
            ),
        ),
        tests=(
            f"{_CHANGES}test_a_change_in_an_outage_that_is_known_is_refused_at_once_and_never_made",
        ),
    ),
    Mutation(
        "status shows the owners that the registry has",
        (
            Change(
                "group/write_queue.py", "owner = record.owner if released else None", "owner = None"
            ),
        ),
        tests=(f"{_AWAY}test_a_death_is_noted_in_an_outage_and_told_when_the_registry_is_back",),
    ),
    Mutation(
        "who stood still itself judges nobody frozen",
        (Change("supervision/freeze_detector.py", "now_s - before_s > gap_max_s", "False"),),
        tests=(f"{_FROZEN}test_who_stood_still_itself_judges_nobody_by_it",),
    ),
    Mutation(
        "slow is not frozen",
        (
            Change(
                "supervision/freeze_detector.py", "(0.5 if seen.stopped else MUTE_LEASES)", "0.5"
            ),
        ),
        tests=(f"{_FROZEN}test_a_process_that_is_mute_and_not_stopped_gets_three_leases",),
    ),
    Mutation(
        "only that very process is ended",
        (
            Change(
                "actors/cluster/process_file.py",
                "if process.boot != boot_id() or not is_that(process):",
                "if False:",
            ),
        ),
        tests=(f"{_WATCHDOG}test_a_number_that_is_another_process_by_now_is_never_ended",),
    ),
    Mutation(
        "who hands over is no orphan",
        (
            Change(
                "actors/coordinator/consumer_supervisor.py",
                "for replica in (*self.replicas.values(), *self.lives.leaving)",
                "for replica in self.replicas.values()",
            ),
        ),
        tests=("tests/unit/test_problems.py::test_orphans_are_actors_that_belong_to_no_member",),
    ),
    Mutation(
        "a host is given up by time that was counted, and only once",
        (
            Change(
                "topology/away_time.py",
                "            self._counted_from_ms[slot] += max(0, new.away_ms - old.away_ms)\n",
                "            pass\n",
            ),
        ),
        tests=(f"{AWAY}::test_what_is_noted_is_counted_once",),
    ),
    Mutation(
        "another coordinator counts on how long a host has been away",
        (
            Change(
                "topology/away_time.py",
                "slot: homes.slots[slot].away_ms + now_ms - from_ms",
                "slot: now_ms - from_ms",
            ),
        ),
        tests=(f"{AWAY}::test_another_coordinator_counts_on_and_not_the_time_between",),
    ),
)
