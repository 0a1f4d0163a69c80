"""What the registry had accepted is noted on disk, and a registry with less is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.actors.high_water import HighWater
from pxrs_ray.errors import StoreCorrupted


def noted(folder: Path) -> HighWater:
    found = HighWater(folder, "first")
    found.check("g", 1, 0)
    found.note("g", 3, 17)
    return HighWater(folder, "first")


def test_what_is_ahead_is_believed(tmp_path: Path) -> None:
    found = noted(tmp_path)
    found.check("g", 4, 17)
    found.check("another", 1, 0)


@pytest.mark.parametrize(("generation", "version"), [(3, 17), (2, 40), (4, 16)])
def test_what_went_back_is_refused(tmp_path: Path, generation: int, version: int) -> None:
    with pytest.raises(StoreCorrupted, match="lost accepted writes"):
        noted(tmp_path).check("g", generation, version)


def test_another_registry_is_refused_unless_it_lives_in_memory(tmp_path: Path) -> None:
    noted(tmp_path)
    with pytest.raises(StoreCorrupted, match="emptied or replaced"):
        HighWater(tmp_path, "second")
    fresh = HighWater(tmp_path, "second", kept=False)
    fresh.check("g", 1, 0)
    fresh.note("g", 1, 1)
    with pytest.raises(StoreCorrupted):
        HighWater(tmp_path, "second", kept=False).check("g", 1, 1)


def test_a_note_that_cannot_be_read_is_told_and_stops_nobody(tmp_path: Path) -> None:
    noted(tmp_path)
    next(tmp_path.glob("*high-water.json")).write_text("{")
    found = HighWater(tmp_path, "first")
    found.check("g", 1, 0)
    assert "cannot be read" in found.problems[0]
