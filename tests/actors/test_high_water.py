"""What the registry had accepted is noted on disk, and a registry with less is refused."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from pxrs_ray.actors.coordinator import startup
from pxrs_ray.actors.coordinator.startup import patiently
from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.files import Files
from pxrs_ray.topology.registry_witness import (
    NAME,
    RegistryWitness,
    ShownRegistry,
    accept_loss,
    may_begin_again,
    noted_in,
)


def noted(folder: Path) -> RegistryWitness:
    found = RegistryWitness(folder, "first")
    found.check("g", 1, 0)
    found.note("g", 3, 17)
    return RegistryWitness(folder, "first")


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
        RegistryWitness(tmp_path, "second")
    fresh = RegistryWitness(tmp_path, "second", kept=False)
    fresh.check("g", 1, 0)
    fresh.note("g", 1, 1)
    with pytest.raises(StoreCorrupted):
        RegistryWitness(tmp_path, "second", kept=False).check("g", 1, 1)


def test_a_note_that_cannot_be_read_is_told_and_stops_nobody(tmp_path: Path) -> None:
    noted(tmp_path)
    next(tmp_path.glob("*high-water.json")).write_text("{")
    found = RegistryWitness(tmp_path, "first")
    found.check("g", 1, 0)
    assert "cannot be read" in found.problems[0]


class UsedUp(Files):
    """Has no descriptor left for the first `times` reads of the note."""

    def __init__(self, times: int) -> None:
        self.times = times

    def open_to_read(self, path: Path) -> int:
        if path.name == NAME and self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().open_to_read(path)


def test_a_note_that_cannot_be_read_for_a_moment_is_not_forgotten(tmp_path: Path) -> None:
    noted(tmp_path).note("h", 7, 70)
    found = RegistryWitness(tmp_path, "first", files=UsedUp(2))
    found.check("g", 1, 0)
    found.note("g", 2, 18)
    assert "cannot be written" in found.problems[0]
    found.note("g", 2, 18)
    assert found.problems == []
    for group, generation in (("g", 3), ("h", 7)):
        with pytest.raises(StoreCorrupted, match="lost accepted writes"):
            RegistryWitness(tmp_path, "first").check(group, generation, 100)


def test_another_registry_is_noticed_by_the_next_start_that_can_read(tmp_path: Path) -> None:
    noted(tmp_path)
    found = RegistryWitness(tmp_path, "second", files=UsedUp(1))
    found.note("g", 1, 1)
    with pytest.raises(StoreCorrupted, match="emptied or replaced"):
        RegistryWitness(tmp_path, "second")
    accept_loss(tmp_path, "me", ShownRegistry("second"))
    unread = RegistryWitness(tmp_path, "second", files=UsedUp(1))
    unread.note("g", 2, 2)
    assert RegistryWitness(tmp_path, "second").accepted == "me"


def test_an_acceptance_is_of_the_registry_that_was_shown(tmp_path: Path) -> None:
    noted(tmp_path)
    accept_loss(tmp_path, "me", ShownRegistry("second", 4))
    with pytest.raises(StoreCorrupted, match="emptied or replaced"):
        RegistryWitness(tmp_path, "third")
    restored_again = RegistryWitness(tmp_path, "second")
    with pytest.raises(StoreCorrupted, match="emptied or replaced"):
        restored_again.led(4, knows=True)
    accepted = RegistryWitness(tmp_path, "second")
    accepted.led(5, knows=True)
    assert accepted.accepted == "me"


def test_who_accepts_a_registry_that_knows_nothing_accepts_no_older_one(tmp_path: Path) -> None:
    noted(tmp_path)
    accept_loss(tmp_path, "me", ShownRegistry())
    with pytest.raises(StoreCorrupted, match="emptied or replaced"):
        RegistryWitness(tmp_path, "second").led(5, knows=True)
    begun = RegistryWitness(tmp_path, "second")
    begun.led(1, knows=False)
    assert begun.accepted == "me"
    same = RegistryWitness(tmp_path, "first")
    same.led(5, knows=True)
    assert not same.accepted, "it is the one from before, and has lost nothing"
    with pytest.raises(StoreCorrupted, match="lost accepted writes"):
        same.check("g", 3, 17)


def test_a_registry_that_is_begun_again_is_not_begun_a_third_time(tmp_path: Path) -> None:
    noted(tmp_path)
    accept_loss(tmp_path, "me", ShownRegistry())
    assert may_begin_again(noted_in(tmp_path))
    begun = RegistryWitness(tmp_path, "second")
    begun.led(1, knows=False)
    begun.registry_says_so()
    assert not may_begin_again(noted_in(tmp_path)), "it is lost once more"
    with pytest.raises(StoreCorrupted, match="emptied or replaced"):
        RegistryWitness(tmp_path, "third")
    again = RegistryWitness(tmp_path, "second")
    again.led(2, knows=False)
    assert again.accepted == "me", "that start was cut off"


def test_a_removed_group_does_not_come_back_with_a_note_that_is_read_late(tmp_path: Path) -> None:
    noted(tmp_path)
    found = RegistryWitness(tmp_path, "first", files=UsedUp(2))
    found.forget("g")
    found.note("h", 1, 1)
    RegistryWitness(tmp_path, "first").check("g", 1, 0)


def test_a_start_waits_for_its_notes_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(tmp_path)
    files = UsedUp(2)

    def read(strict: bool) -> RegistryWitness:
        return RegistryWitness(tmp_path, "first", files=files, strict=strict)

    found = asyncio.run(patiently(read))
    assert found.problems == [] and found.generation("g") == 3
    monkeypatch.setattr(startup, "NOTES_WAIT_S", 0.3)
    files.times = 1_000
    assert "cannot be read" in asyncio.run(patiently(read)).problems[0]
