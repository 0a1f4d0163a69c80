"""Events of ownership: numbered, complete, and told as before and after."""

from __future__ import annotations

import pytest

from pxrs_ray.errors import OffsetOutOfRange
from pxrs_ray.group.ownership_events import PartitionChanges
from pxrs_ray.model import Change


def change(version: int, kind: str, partition: int, owner: str | None) -> Change:
    return Change(version, kind, partition, owner, 1, version, 0, f"because {version}", 0)


def test_each_change_tells_who_had_what_and_who_has_it_now() -> None:
    changes = PartitionChanges("g", 10, {0: "a", 1: "a", 2: "b"})
    released = changes.take(change(11, "release", 1, "a"))
    claimed = changes.take(change(12, "claim", 1, "b"))
    assert released is not None and claimed is not None
    assert (released.sequence, released.old, released.new) == (
        11,
        {"a": (0, 1), "b": (2,)},
        {"a": (0,), "b": (2,)},
    )
    assert claimed.new == {"a": (0,), "b": (1, 2)} and claimed.cause == "because 12"
    assert (claimed.gained("b"), released.lost("a"), claimed.lost("a")) == ((1,), (1,), ())


def test_what_moves_nothing_is_no_event_but_counts() -> None:
    changes = PartitionChanges("g", 0, {})
    assert changes.take(change(1, "joined", -1, "a")) is None
    assert changes.take(change(2, "reset", 3, None)) is None
    assert changes.take(change(1, "claim", 3, "a")) is None, "it was taken before"
    assert changes.sequence == 2
    event = changes.take(change(3, "claim", 3, "a"))
    assert event is not None and event.sequence == 3


def test_a_gap_is_told() -> None:
    with pytest.raises(OffsetOutOfRange, match="changes 1 to 4"):
        PartitionChanges("g", 0, {}).take(change(5, "claim", 0, "a"))
