"""The nets are proven, not trusted: with any one guard taken away, one of them has to notice.

Every guard of the simulator is taken away here, and of those that other tests notice always the
same sixth, for each of them starts a pytest. `make bench ONLY=proof.guards`, or
PXRS_TEST_EVERY_GUARD=1, takes all of them away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from zlib import crc32

import pytest

from tests.simulation.checkers import CHECKERS
from tests.simulation.guard_runs import PACKAGE, ROOT, WorkingCopy, missed
from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.mutations.first_seeds import FIRST_SEEDS

GUARDS_MIN = 60
ONE_OF = 1 if os.environ.get("PXRS_TEST_EVERY_GUARD") else 6
TAKEN = tuple(m for m in MUTATIONS if m.seen_by or crc32(m.guard.encode()) % ONE_OF == 0)


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkingCopy]:
    folder = tmp_path_factory.mktemp("guards")
    copy = WorkingCopy(folder)
    yield copy
    copy.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("mutation", TAKEN, ids=lambda mutation: mutation.guard)
def test_a_missing_guard_is_noticed(mutation: Mutation, copy: WorkingCopy) -> None:
    """Each by itself: workers share them, and none waits for all."""
    said = missed(mutation, copy)
    assert not said, said


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.guard)
def test_a_guard_can_be_taken_away(mutation: Mutation) -> None:
    for change in mutation.changes:
        source = (PACKAGE / change.file).read_text()
        assert source.count(change.text) == 1, f"{change.file}: rewrite the mutation"
        assert change.text != change.instead
    for test in mutation.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_there_are_enough_guards_and_they_are_told_apart() -> None:
    guards = [mutation.guard for mutation in MUTATIONS]
    assert len(set(guards)) == len(guards) >= GUARDS_MIN
    assert FIRST_SEEDS.keys() <= set(guards)
    known = {checker.__name__ for checker in CHECKERS}
    assert all(set(mutation.seen_by) <= known for mutation in MUTATIONS)
