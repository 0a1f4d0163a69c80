"""What can stand in the files of logs, for the property test of codecs."""

from __future__ import annotations

from collections import deque
from typing import Any, get_type_hints

from hypothesis import strategies as st

from pxrs_ray.data.frame import KNOWN_FLAGS, FrameHeader, Mark
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.log.index import SparseIndex
from pxrs_ray.log.log_begin import Beginning
from pxrs_ray.log.producer_state import (
    ANSWERS_MAX,
    SNAPSHOT,
    Answer,
    KnownProducer,
    ProducersSnapshot,
)
from pxrs_ray.log.segment import SegmentHead

BOUNDS = st.integers(1, 1 << 62)
NUMBERS = st.integers(0, (1 << 63) - 1)
STAMPS = st.integers(-(1 << 63), (1 << 63) - 1)
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
IDS = st.binary(min_size=16, max_size=16)

st.register_type_strategy(
    LogLimits,
    st.builds(
        LogLimits,
        **{name: BOUNDS for name, kind in get_type_hints(LogLimits).items() if kind is int},
        **{
            name: st.none() | BOUNDS
            for name, kind in get_type_hints(LogLimits).items()
            if kind == int | None
        },
    ),
)


@st.composite
def _indexes(draw: st.DrawFn) -> SparseIndex:
    entries = draw(st.integers(0, 5))
    column = st.lists(STAMPS, min_size=entries, max_size=entries)
    columns = draw(column), draw(column), draw(column)
    return SparseIndex(0, draw(NUMBERS), draw(NUMBERS), draw(STAMPS), draw(STAMPS), *columns)


_ANSWERS = st.lists(st.builds(Answer, NUMBERS, NUMBERS, NUMBERS, U64), min_size=1, max_size=4)
_PRODUCERS = st.builds(
    KnownProducer, U32, NUMBERS, NUMBERS, _ANSWERS.map(lambda found: deque(found, ANSWERS_MAX))
)
_MARKS = st.none() | st.builds(Mark, U32, st.integers(0, (1 << 16) - 2))

_SNAPSHOTS = st.builds(
    ProducersSnapshot, NUMBERS, NUMBERS, st.dictionaries(IDS, _PRODUCERS, max_size=4)
)

LOG_STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "log: lock (synced offset)": NUMBERS,
    "log: cut": NUMBERS,
    "log: begin": st.builds(Beginning, NUMBERS, _SNAPSHOTS.map(SNAPSHOT.encode)),
    "log: *.seg, its header": st.builds(SegmentHead, NUMBERS, NUMBERS, st.just(0))
    | st.builds(SegmentHead, NUMBERS, st.just(0), st.integers(1, (1 << 63) - 1)),
    "log: *.idx": _indexes(),
    "log: frame header": st.builds(
        FrameHeader,
        U32,
        st.integers(0, KNOWN_FLAGS),
        NUMBERS,
        IDS,
        U32,
        NUMBERS,
        STAMPS,
        STAMPS,
        U32,
        U64,
        _MARKS,
    ),
    "log: producers.snap": _SNAPSHOTS,
}
