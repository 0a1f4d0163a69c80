"""What a drain, or a move, means: pauses, obstacles, and the nodes that nothing can leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.topology.homes import Home, Homes, RegistryHome
from pxrs_ray.topology.move_plan import (
    BUSY,
    COPY_BYTES_PER_S,
    LITTLE_BYTES,
    STOP_AND_START_MOST_MS,
    STOP_AND_START_MS,
    Kept,
    check_may_go,
    estimate,
    find_node,
    plan_leaving,
)
from pxrs_ray.topology.node_seen import NodeSeen

GB = 1_000_000_000


def node(number: int, **options: object) -> NodeSeen:
    seen = NodeSeen(f"{number}" * 8 + "-node", f"10.0.0.{number}", f"d{number}", free_bytes=50 * GB)
    return replace(seen, **options)  # type: ignore[arg-type]


def homes(*numbers: int, registry: int | None = None) -> Homes:
    found = Homes()
    for slot, n in enumerate(numbers):
        found = found.with_slot(slot, Home(f"d{n}", node(n).node, f"10.0.0.{n}"))
    if registry is None:
        return found
    n = registry
    return replace(found, registry=RegistryHome(f"d{n}", node(n).node, f"10.0.0.{n}"))


# --- the pause ------------------------------------------------------------------------------------


def test_a_quiet_buffer_pauses_for_its_stop_and_start_alone() -> None:
    found = estimate(5 * GB, 0.0)
    assert (found.copy_s, found.last_bytes, found.pause_ms) == (100.0, 0, STOP_AND_START_MS)


def test_what_is_written_during_the_last_round_is_what_everybody_waits_for() -> None:
    # 5 GB take 100 s, in which 500 MB come; those take 10 s, in which 50 MB come; then 5 MB.
    found = estimate(5 * GB, 5e6)
    rounds = [100.0, 10.0, 1.0, 0.1]
    assert found.copy_s == pytest.approx(sum(rounds))
    assert found.last_bytes == 500_000
    assert found.pause_ms == STOP_AND_START_MS + 10
    # On busy hosts it is copied at a fourth of the rate: more comes during the last round.
    busy = estimate(5 * GB, 5e6, COPY_BYTES_PER_S / BUSY)
    assert found.pause_most_ms - STOP_AND_START_MOST_MS == busy.pause_ms - STOP_AND_START_MS > 100


def test_the_moves_that_were_measured_on_busy_hosts_are_within_what_is_told() -> None:
    found = estimate(40_000_000, 0.0)
    measured_ms = (1_500, 1_700, 2_600, 4_900)
    assert found.pause_ms < sorted(measured_ms)[2]
    assert max(measured_ms) < found.pause_most_ms


def test_who_is_written_to_faster_than_it_is_copied_waits_for_long() -> None:
    found = estimate(1 * GB, 2 * COPY_BYTES_PER_S)
    assert found.last_bytes > 4 * GB and found.pause_ms > 80_000


@given(st.integers(0, 10**13), st.floats(0, 1e9, allow_nan=False), st.floats(1e5, 1e10))
def test_an_estimate_ends_and_is_never_negative(size: int, written: float, copied: float) -> None:
    found = estimate(size, written, copied)
    assert found.copy_s >= 0 and found.last_bytes >= 0 and found.pause_ms >= STOP_AND_START_MS
    assert found.pause_most_ms >= max(found.pause_ms, STOP_AND_START_MOST_MS)
    if written <= copied / 2:
        # It ends when a round was small, so what is left is what came during a small one.
        few = size / 2**7  # after so many rounds
        assert found.last_bytes <= max(LITTLE_BYTES, few)


# --- where to, and whether in time ----------------------------------------------------------------


def test_each_buffer_goes_to_the_emptiest_node_in_turn() -> None:
    nodes = [node(1), node(2), node(3)]
    kept = {slot: Kept(GB, 0.0) for slot in range(4)}
    found = plan_leaving("t", homes(1, 1, 1, 1), nodes, dict.fromkeys(range(4)), kept)
    assert [move.target for move in found.moves] == ["10.0.0.2", "10.0.0.3"] * 2
    assert found.cannot == ()
    assert found.needs_s == pytest.approx(4 * 22.0)


def test_what_does_not_fit_before_the_deadline_is_told() -> None:
    kept = {0: Kept(GB, 0.0), 1: Kept(GB, 0.0)}
    plan = dict.fromkeys(range(2))
    found = plan_leaving("t", homes(1, 1), [node(1), node(2)], plan, kept, deadline_s=30)
    (told,) = found.cannot
    assert "buffer 1 has 1,000.0 MB to copy" in told and "after about 44 s" in told
    assert "the deadline is 30 s" in told
    assert not plan_leaving("t", homes(1, 1), [node(1), node(2)], plan, kept, deadline_s=60).cannot


def test_a_disk_without_room_is_told_also_when_another_buffer_takes_it() -> None:
    kept = {0: Kept(30 * GB, 0.0), 1: Kept(30 * GB, 0.0)}
    found = plan_leaving("t", homes(1, 1), [node(1), node(2)], dict.fromkeys(range(2)), kept)
    (told,) = found.cannot
    assert "buffer 1 has 30,000.0 MB to copy, and the disk of host 10.0.0.2 has 20,000.0 MB" in told


def test_without_another_disk_it_is_told_and_nothing_is_invented() -> None:
    others = [node(2, disk=""), node(3, draining=True)]
    found = plan_leaving("t", homes(1), [node(1), *others], {0: None}, {0: Kept(GB, 0.0)})
    (told,) = found.cannot
    assert "no other node that stays has a disk" in told and "Add a node" in told
    assert found.moves[0].target == "" and found.moves[0].estimate is None


def test_a_shared_disk_needs_no_copy_and_no_room() -> None:
    shared = node(2, disk="d1", free_bytes=0)
    found = plan_leaving("t", homes(1), [node(1), shared], {0: None}, {0: Kept(GB, 1e6)})
    (move,) = found.moves
    assert move.bytes == 0 and move.estimate is not None and found.cannot == ()
    assert move.estimate.pause_ms == STOP_AND_START_MS


def test_what_is_in_memory_and_who_does_not_answer_are_told() -> None:
    kept = {0: Kept(0, 0.0, {"clicks": 120, "none": 0}), 1: Kept()}
    found = plan_leaving("t", homes(1, 1), [node(1), node(2)], dict.fromkeys(range(2)), kept)
    memory, mute = found.cannot
    assert "queue clicks keeps its messages in memory: the 120 of buffer 0 are lost" in memory
    assert "buffer 1 does not answer now" in mute


def test_a_place_that_is_named_must_do() -> None:
    with pytest.raises(UsageError, match=r"on host 10\.0\.0\.1 already"):
        plan_leaving("t", homes(1), [node(1), node(2)], {0: "10.0.0.1"}, {})
    with pytest.raises(NotFound, match="0 nodes are called"):
        plan_leaving("t", homes(1), [node(1), node(2)], {0: "10.0.0.9"}, {})


# --- which node -----------------------------------------------------------------------------------


def test_a_node_is_found_by_host_id_and_the_beginning_of_it() -> None:
    nodes = [node(1), node(2)]
    for wanted in ("10.0.0.2", node(2).node, "222222"):
        assert find_node(nodes, wanted) == node(2)
    for wanted in ("2222", "nonsense", ""):
        with pytest.raises(NotFound, match=r"no living node is called .*10\.0\.0\.1 \(11111111\)"):
            find_node(nodes, wanted)
    with pytest.raises(NotFound, match="2 living nodes are called"):
        find_node([node(1), node(1, node="other")], "10.0.0.1")


def test_the_last_node_is_not_drained() -> None:
    for others in ([], [node(2, draining=True)]):
        with pytest.raises(UsageError, match="is the last node that stays"):
            check_may_go("t", homes(1), node(1), [node(1), *others])
    check_may_go("t", homes(1), node(1), [node(1), node(2)])


def test_the_node_of_a_registry_that_is_a_file_is_not_drained_and_the_way_out_is_told() -> None:
    nodes = [node(1), node(2)]
    with pytest.raises(UsageError, match=r"registry of t is a file on host 10\.0\.0\.1") as told:
        check_may_go("t", homes(1, registry=1), node(1), nodes)
    assert "`pxrs store copy sqlite:///... URL`" in str(told.value)
    check_may_go("t", homes(1, registry=1), node(2), nodes)
    # On a disk that both have, the coordinator goes where it is shown.
    check_may_go("t", homes(1, registry=1), node(1), [node(1), node(2, disk="d1")])
