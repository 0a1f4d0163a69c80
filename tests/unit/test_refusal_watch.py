"""Which buffers refuse appends now, by what they have counted so far."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pxrs_ray.data.protocol import QueueSpec, Refused
from pxrs_ray.errors import DiskFull, LeaseOver, PartitionFull, SequenceGap
from pxrs_ray.log.buffer_calls import AppendCall
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.refusals import RefusedAppends
from pxrs_ray.status.refusal_watch import WINDOW_MS, RefusalWatch
from tests.logs import NOW_MS, wire
from tests.settings import log_limits


def test_what_was_refused_before_the_first_look_is_not_of_late() -> None:
    watch = RefusalWatch()
    assert watch.note(0, {0: 700, 1: 0}) == {}
    assert watch.note(1_000, {0: 703, 1: 0}) == {0: 3}
    assert watch.note(2_000, {0: 704, 1: 2}) == {0: 4, 1: 2}
    assert watch.note(1_000 + WINDOW_MS, {0: 704, 1: 2}) == {0: 4, 1: 2}
    assert watch.note(10_000 + WINDOW_MS, {0: 704, 1: 2}) == {}


def test_a_buffer_that_started_anew_counts_from_nothing() -> None:
    watch = RefusalWatch()
    watch.note(0, {0: 700})
    assert watch.note(1_000, {0: 5}) == {0: 5}
    assert watch.note(2_000, {}) == {0: 5}, "it does not answer, and has refused a moment ago"


def test_what_is_kept_is_bounded() -> None:
    watch = RefusalWatch()
    for look in range(10_000):
        watch.note(look * 100, {0: look})
    assert sum(map(len, watch._grown.values())) <= WINDOW_MS // 5_000 + 2


def test_what_passes_by_itself_is_no_refusal() -> None:
    refused = RefusedAppends()
    for error in (LeaseOver("for a moment"), SequenceGap("its turn comes")):
        refused.note("q", Refused(3, error))
    assert (refused.count, refused.last) == (0, "")
    refused.note("q", Refused(3, PartitionFull("64 GiB")))
    refused.note("q", Refused(4, DiskFull("no space")))
    assert (refused.count, refused.last) == (2, "P4 of q: DiskFull('no space')")


def test_an_append_that_finds_its_partition_full_is_counted_when_its_producer_hears_it(
    tmp_path: Path,
) -> None:
    """It waits first: a reader may make room."""
    manager = LogManager(tmp_path, 0, 1, NOW_MS)
    limits = log_limits(partition_bytes_max=3_000, tail_bytes_max=3_000, frame_bytes_max=2_500)
    manager.open(QueueSpec("q", 1, limits), {}, NOW_MS, make=True)

    def append(sequence: int) -> AppendCall:
        frames = [(0, *wire([b"x" * 800], sequence))]
        call = AppendCall(manager, Counter(), lambda: LeaseOver("over"), "q", frames)
        call.begin(True, 1)
        call.run(NOW_MS)
        call.end({}, True, 1)
        return call

    assert append(0).answer(final=False)
    full = append(1)
    assert full.answer(final=False) is None and manager.refused_appends.count == 0
    (answer,) = full.answer(final=True) or ()
    assert isinstance(answer, Refused) and isinstance(answer.error, PartitionFull)
    assert manager.refused_appends.count == 1
    assert manager.refused_appends.last.startswith("P0 of q: PartitionFull(")
    manager.close()
