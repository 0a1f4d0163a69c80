"""The simulator is proven, not trusted: with any one guard taken away, a checker has to notice."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pxrs_ray.testing.checkers import CHECKERS, check
from pxrs_ray.testing.simulator.run import run
from tests.simulation.guard_runs import Verdict, simulate_without
from tests.simulation.mutations import MUTATIONS, Mutation


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict | AssertionError]:
    """One verdict a mutation, all of them found side by side."""

    def judge(mutation: Mutation) -> Verdict | AssertionError:
        folder: Path = tmp_path_factory.mktemp("without")
        try:
            return simulate_without(mutation, folder)
        except AssertionError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(judge, MUTATIONS))
    return {mutation.guard: one for mutation, one in zip(MUTATIONS, found, strict=True)}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.guard)
def test_a_missing_guard_is_noticed(
    mutation: Mutation, verdicts: dict[str, Verdict | AssertionError]
) -> None:
    verdict = verdicts[mutation.guard]
    if isinstance(verdict, AssertionError):
        raise verdict
    assert verdict.checkers & set(mutation.seen_by), verdict.output
    assert verdict.seed is not None
    # The same run with the guard in its place: what was noticed is the guard, not the settings.
    settings = {name: float(value) for name, value in map(_split, mutation.settings)}
    assert not check(run(verdict.seed, settings).history)


def test_there_are_enough_guards_and_they_are_told_apart() -> None:
    guards = [mutation.guard for mutation in MUTATIONS]
    assert len(set(guards)) == len(guards) >= 12
    known = {checker.__name__ for checker in CHECKERS}
    assert all(set(mutation.seen_by) <= known for mutation in MUTATIONS)


def _split(setting: str) -> tuple[str, str]:
    name, _, value = setting.partition("=")
    return name, value
