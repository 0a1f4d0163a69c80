"""What a pulling caller has done, where its log has gaps."""

from __future__ import annotations

from pxrs_ray.consumer.pulled_positions import PulledPositions
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Grant, Offset

GAP_END = 9


def _taken_with_a_gap_behind() -> PulledPositions:
    """Messages 0 to 2 are in the caller's hands, and it has seen that 3 to 8 are no more."""
    positions = PulledPositions()
    positions.begin(Grant(0, 1, 0))
    _put(positions, 0)
    positions.skip(0, 1, GAP_END)
    assert positions.take(1) is not None
    assert positions.take(1) is None
    return positions


def _put(positions: PulledPositions, base: Offset) -> None:
    batch = Batch.of([b"k"] * 3, [b"x"] * 3, timestamp_ms=1)
    batch.partition, batch.base_offset = 0, base
    assert positions.put(0, 1, batch, 100)


def _done(positions: PulledPositions) -> Offset:
    progress = positions.progress(0, 1)
    assert progress is not None
    return progress.checkpoint


def test_a_gap_behind_what_is_said_to_be_done_is_done() -> None:
    positions = _taken_with_a_gap_behind()
    positions.note_done({0: 3})
    assert _done(positions) == GAP_END


def test_a_gap_behind_what_is_not_done_is_not_done() -> None:
    positions = _taken_with_a_gap_behind()
    assert _done(positions) == 0
    positions.note_done({0: 2})
    assert _done(positions) == 2


def test_a_gap_does_not_hold_up_a_hand_over() -> None:
    positions = _taken_with_a_gap_behind()
    positions.drain(0)
    assert positions.ready() == []
    positions.note_done({0: 3})
    assert positions.ready() == [(0, 1)]


def test_a_gap_between_two_batches_is_done_with_the_second() -> None:
    positions = _taken_with_a_gap_behind()
    _put(positions, GAP_END)
    assert positions.take(1) is not None
    positions.note_done({0: 3})
    assert _done(positions) == 3
    positions.note_done({0: GAP_END + 3})
    assert _done(positions) == GAP_END + 3


def test_nothing_is_done_that_was_not_taken() -> None:
    positions = _taken_with_a_gap_behind()
    positions.note_done({0: 1_000})
    assert _done(positions) == GAP_END


def test_after_the_close_nothing_more_is_done() -> None:
    positions = _taken_with_a_gap_behind()
    positions.note_done({0: 1})
    positions.close()
    positions.note_done({0: 3})
    assert _done(positions) == 1
