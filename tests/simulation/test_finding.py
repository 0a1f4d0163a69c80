"""A failure is made small and told; what runs have seen is counted, and looked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from tests.simulation import command
from tests.simulation.checkers import Violation
from tests.simulation.command import Result, Teller, main, simulate
from tests.simulation.coverage import pairs
from tests.simulation.history import Harmed, Struck
from tests.simulation.shrink import Case, shrink, transcript
from tests.simulation.simulator.run import run


def _breaks(case: Case) -> frozenset[str]:
    """As if this broke wherever the second fault of the seed is, with two members or more."""
    happens = case.faults is None or 2 in case.faults
    return frozenset({"Some"} if happens and case.overrides.get("members", 9) >= 2 else ())


def test_a_failure_is_shrunk_to_the_one_fault_and_the_setting_that_it_takes() -> None:
    small = shrink(Case(4), _breaks)
    assert small.faults == frozenset({2})
    assert small.overrides["members"] == 2
    assert small.overrides["partitions"] == 1


def test_what_breaks_nothing_is_not_shrunk() -> None:
    assert shrink(Case(4), lambda _: frozenset()) == Case(4)


def test_a_fault_that_is_left_out_changes_none_of_the_others() -> None:
    whole = [event for event in run(3).history if isinstance(event, Struck)]
    assert len(whole) > 3
    chosen = frozenset(event.number for event in whole[1::2])
    left = [event for event in run(3, {}, chosen).history if isinstance(event, Struck)]
    assert left == whole[1::2]


def test_the_command_of_a_case_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(4, {"members": 2.0, "lost": 0.5}, frozenset({1, 3}))
    assert case.command() == 'make simulate SEED=4 FAULTS=1,3 SET="members=2 lost=0.5"'
    assert main(["--seed", "4", "--faults", "1,3", "--set", "members=2", "--history"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Struck(")]
    assert [line.partition("number=")[2][0] for line in told] == ["1", "3"]


def test_a_transcript_ends_where_the_promise_is_broken() -> None:
    history = (Struck(5, 1, "hang"), Harmed(7, "power", True), Harmed(9, "power", True))
    told = transcript(history, (Violation("OneOwner", 7, "two of them"),)).splitlines()
    assert [line.split()[2] for line in told] == ["Struck", "Harmed", "BROKEN"]


def test_pairs_are_of_a_state_and_what_happened_in_it() -> None:
    found = pairs([Struck(1, 1, "hang"), Struck(2, 2, "power_cut"), Harmed(3, "power", True)])
    assert found == {
        ("after calm", "hang"),
        ("after hang", "power_cut"),
        ("log power_cut", "Harmed"),
    }


def test_steering_looks_near_what_was_new() -> None:
    seeds = range(20)
    steered, plain = simulate(seeds, {}, steer=True), simulate(seeds, {})
    assert steered.runs == plain.runs
    assert steered.faults != plain.faults
    assert len(steered.pairs) > len(plain.pairs) / 2


def test_a_long_run_says_once_a_minute_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = 0.0
    teller, total = Teller(1_000, lambda: seconds), Result()
    for _ in range(10):
        seconds += 25
        total.runs += 100
        teller(total)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 3
    assert told[0] == (
        "300 of 1,000 runs in 0:01:15, 4.0 a second, 0 failed; 0 faults, 0 pairs; 0:02:55 to go"
    )


def test_what_waits_of_a_long_run_is_bounded_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[range] = []

    class Pool:
        def __init__(self, jobs: int, initializer: object) -> None:
            self.jobs = jobs

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def submit(self, judge: Callable[[range], Result], seeds: range) -> Future[Result]:
            asked.append(seeds)
            done: Future[Result] = Future()
            done.set_result(Result(len(seeds)))
            return done

        def shutdown(self, *, cancel_futures: bool) -> None:
            pass

    monkeypatch.setattr(command, "ProcessPoolExecutor", Pool)
    ahead: list[int] = []

    def tell(total: Result) -> None:
        ahead.append(sum(map(len, asked)) - total.runs)

    assert simulate(range(7, 10_020), {}, jobs=2, tell=tell).runs == 10_013
    assert max(ahead) <= 2 * command.CHUNKS_AHEAD * command.CHUNK_RUNS
    assert [seed for seeds in asked for seed in seeds] == list(range(7, 10_020))
