"""Whatever a group is asked: an error and nothing changed, or records that a store keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.errors import Fenced, NotFound, PxrsError, UsageError
from pxrs_ray.group.assignors import ASSIGNORS
from pxrs_ray.group.event_checks import check_call, harmless
from pxrs_ray.group.events import (
    Commit,
    Configure,
    Died,
    Event,
    Heartbeat,
    Join,
    Leave,
    PartitionProgress,
    Prepared,
    Rebalance,
    Release,
    Seek,
    Tick,
)
from pxrs_ray.group.group_state import GroupState
from pxrs_ray.model import Member, Progress
from tests.unit.driven_group import GROUP, SHORT, DrivenGroup

REFUSALS = (Fenced, UsageError, NotFound)

# Mostly what members say, now and then what nobody should.
NUMBERS = st.integers(0, 6) | st.sampled_from((-1, 2**31, 2**63 - 1, 2**63, 2**70, -(2**70)))
NAMES = st.sampled_from("abcd") | st.sampled_from(
    ("x" * 201, "a\0b", "\udcff", "\x1b[2J", "é" * 200)
)
TEXTS = st.text(max_size=20) | st.sampled_from(("", "ok", "x" * 3_000, "a\0b", "\udcff", "\x1b[2J"))
WEIGHTS = st.floats() | st.sampled_from((1.0, 2.0, 0.5, math.inf, math.nan, 0.0, 5e-324, 1e308))
PARTITIONS = st.integers(-2, 5)
TIMES = st.none() | NUMBERS


def members() -> st.SearchStrategy[Member]:
    def make(name: str, number: int, weight: float, grace_ms: int, label: str) -> Member | None:
        try:
            return Member(name, number, weight, grace_ms, (label,))
        except AssertionError:
            return None

    made = st.builds(make, NAMES, NUMBERS, WEIGHTS, NUMBERS, TEXTS)
    plain = st.builds(Member, st.sampled_from("abcd"), st.integers(1, 6), grace_ms=st.just(0))
    return plain | made.filter(lambda member: member is not None)  # type: ignore[return-value]


ROWS = st.lists(
    st.builds(
        PartitionProgress,
        PARTITIONS,
        st.integers(0, 8),
        st.builds(Progress, NUMBERS, NUMBERS, TEXTS),
    ),
    max_size=3,
).map(tuple)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.lists(members(), max_size=3).map(lambda found: Join(tuple(found))),
    st.builds(Heartbeat, NAMES, NUMBERS, st.tuples(st.integers(0, 1), st.integers(0, 9))),
    st.builds(Commit, NAMES, NUMBERS, ROWS),
    st.builds(Release, NAMES, NUMBERS, ROWS),
    st.builds(Prepared, NAMES, NUMBERS, st.lists(PARTITIONS, max_size=3).map(tuple)),
    st.builds(Leave, NAMES, NUMBERS, TEXTS),
    st.builds(Died, NAMES, NUMBERS, TEXTS),
    st.builds(
        Configure,
        st.none() | st.sampled_from(sorted(ASSIGNORS)) | TEXTS,
        st.none() | st.dictionaries(PARTITIONS, NAMES, max_size=3),
        st.none() | st.dictionaries(NAMES, WEIGHTS, max_size=2),
        TIMES,
        TIMES,
        TIMES,
        st.none() | st.booleans(),
    ),
    st.builds(Rebalance, TEXTS),
    st.builds(Seek, st.dictionaries(PARTITIONS, NUMBERS, max_size=3), TEXTS),
    st.just(Tick()),
)


@settings(max_examples=400)
@given(st.lists(st.tuples(EVENTS, st.integers(0, 400)), max_size=25), st.booleans())
def test_an_event_is_refused_and_changes_nothing_or_is_stored_and_can_be_read_again(
    script: list[tuple[Event, int]], prepares: bool
) -> None:
    group = DrivenGroup(4, replace(SHORT, prepare_ms=100 if prepares else 0))
    group.join("a", "b")
    for event, pause_ms in script:
        group.clock.advance(pause_ms)
        before = group.everything()
        try:
            decision = group.core.handle(_live(group, event), group.clock.now())
        except REFUSALS:
            assert group.everything() == before
            continue
        # What DrivenGroup's store refuses raises here: nothing may get that far.
        group._carry_out(decision)
        _check_replay(group)
        for name in list(group.sessions):
            group.hand_back(name)


def _live(group: DrivenGroup, event: Event) -> Event:
    """The same event, its rows under the epochs that are current: they get further."""
    if not isinstance(event, Commit | Release) or not all(0 <= r.partition < 4 for r in event.rows):
        return event
    rows = tuple(replace(row, epoch=group.row(row.partition).epoch) for row in event.rows)
    return replace(event, rows=rows)


def _check_replay(group: DrivenGroup) -> None:
    """Who starts from the store alone knows the same."""
    snapshot = group.store.load(GROUP)
    assert snapshot is not None
    state, again = group.core.state, GroupState(snapshot, 0)
    assert (again.rows, again.version) == (state.rows, state.version)
    have = {name: slot.member for name, slot in state.members.items()}
    assert {name: slot.member for name, slot in again.members.items()} == have
    assert {m: p for m, p in again.owned.items() if p} == {
        m: p for m, p in state.owned.items() if p
    }


@pytest.mark.parametrize(
    "event",
    [
        Join((Member("x" * 201, 1),)),
        Join((Member("a\0b", 1),)),
        Join((Member("\udcff", 1),)),
        Join((Member("n", 1, weight=math.inf),)),
        Join((Member("n", 1, weight=math.nan) if math.nan > 0 else Member("n", 2**63),)),
        Join((Member("n", 1, labels=("x" * 2_000,)),)),
        Join((Member("n", 1, labels=("\udcff",)),)),
        Join((Member("n", 1, grace_ms=2**63),)),
        Commit("a", 1, (PartitionProgress(0, 1, Progress(2**63)),)),
        Commit("a", 1, (PartitionProgress(0, 1, Progress("5")),)),  # type: ignore[arg-type]
        Commit("a", 1, (PartitionProgress(0, 1, Progress(True)),)),
        Commit("a", 1, (PartitionProgress(None, 1, Progress(5)),)),  # type: ignore[arg-type]
        Commit("a", 1, (PartitionProgress(0, 1.0, Progress(5)),)),  # type: ignore[arg-type]
        Commit("a", 1, (PartitionProgress(0, 1, Progress(5, 0, b"")),)),  # type: ignore[arg-type]
        Commit("a", 1, (PartitionProgress(0, 1, Progress(1, attempts=2**63)),)),
        Commit("a", 1, (PartitionProgress(0, 1, Progress(1, detail="x" * 3_228)),)),
        Release("a", 1, (PartitionProgress(0, 1, Progress(1, detail="é")),)),
        Configure(weights={"a": math.inf}),
        Configure(weights={"a": math.nan}),
        Configure(lease_ms=0),
        Configure(revoke_deadline_ms=2**63),
        Seek({0: 2**63}),
    ],
    ids=lambda event: repr(event)[:60],
)
def test_what_no_store_keeps_is_refused_at_the_door(event: Event) -> None:
    group = DrivenGroup(4, SHORT)
    group.join("a", "b")
    before = group.everything()
    with pytest.raises(UsageError):
        group.core.handle(event, group.clock.now())
    assert group.everything() == before


def test_a_cause_is_never_refused_and_shown_harmless() -> None:
    group = DrivenGroup(4, SHORT)
    group.join("a", "b")
    group.do(Died("a", 1, "its handler said \x1b[2J\0\udcff\nand died"))
    causes = {change.cause for change in group.store.changes(GROUP, 0)}
    assert "a#1 died: its handler said ?[2J?? and died" in causes


@pytest.mark.parametrize("text", ["plain", "é ü", "a\tb", "\x1b]0;x\x07", "\udcff", "\u202e"])
def test_harmless_text_is_text_for_any_terminal_and_any_store(text: str) -> None:
    assert harmless(text).isprintable()
    harmless(text).encode()


# --- calls ----------------------------------------------------------------------------------------


class Desk:
    async def commit(self, member: str, number: int, rows: Sequence[tuple[Any, ...]]) -> None:
        """As the shared of members has it."""

    async def seek(self, kind: str, value: int, partitions: Sequence[int] | None = None) -> None:
        """As the commands of groups have it."""


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(("commit", "seek")), st.lists(ANYTHING, max_size=5))
def test_any_arguments_are_let_in_or_refused_by_name(name: str, arguments: list[Any]) -> None:
    try:
        check_call(getattr(Desk(), name), tuple(arguments))
    except PxrsError as error:
        assert isinstance(error, UsageError) and str(error).startswith(name)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("commit", ("a", 1), "3 to 3 arguments, got 2"),
        ("commit", ("a", "1", []), "number"),
        ("commit", ("a", True, []), "number"),
        ("commit", ("a", 1.0, []), "number"),
        ("commit", (b"a", 1, []), "member"),
        ("commit", ("a", 1, [5]), "rows.0"),
        ("seek", ("offset", 5, [None]), "partitions"),
    ],
)
def test_a_wrong_argument_is_named(name: str, arguments: tuple[Any, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_call(getattr(Desk(), name), arguments)


def test_right_arguments_pass() -> None:
    check_call(Desk().commit, ("a", 1, [(0, 1, 5, 0, "")]))
    check_call(Desk().commit, ("a", 1, ((0, 1, 5),)))
    check_call(Desk().seek, ("offset", 5))
    check_call(Desk().seek, ("offset", 5, [1, 2]))
