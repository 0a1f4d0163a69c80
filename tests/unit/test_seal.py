"""What the registry says is believed where it bears a seal of this topology."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.files import Files
from pxrs_ray.topology.seal import KEY_FILE, KEYS_MAX, Seal, forget_old_keys, new_key, seal_of

KEY = b"k" * 32


@given(st.text(), st.text(), st.text())
def test_a_seal_is_for_one_text_in_one_place(place: str, text: str, other: str) -> None:
    seal = Seal([KEY])
    sealed = seal.sealed(place, text)
    assert seal.opened(place, sealed) == (text, True)
    assert seal.opened(place, text)[1] is False
    assert Seal([new_key()]).opened(place, sealed) == (text, False)
    if other != text:
        assert seal.opened(place, sealed[: len(sealed) - len(text)] + other)[1] is False
    if other != place:
        assert seal.opened(other, sealed) == (text, False)


def test_the_next_start_on_this_disk_knows_the_keys_of_the_former_ones(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    first, _ = seal_of(folder, KEY)
    kept = first.sealed("g/replicas", "text")
    for _ in range(3 * KEYS_MAX):  # of which none came as far as to seal anew
        later, problem = seal_of(folder, new_key())
        assert later.opened("g/replicas", kept) == ("text", True) and problem == ""
        anew = later.renewed("g/replicas", kept)
        assert anew == later.sealed("g/replicas", "text") != kept
    assert anew is not None and later.renewed("g/replicas", anew) is None
    forget_old_keys(folder)
    latest, _ = seal_of(folder, new_key())
    assert latest.opened("g/replicas", anew) == ("text", True)
    assert latest.renewed("g/replicas", anew) == latest.sealed("g/replicas", "text")
    assert latest.opened("g/replicas", kept) == ("text", False), "long ago, and sealed anew since"
    assert seal_of(tmp_path / "shop", KEY)[0].opened("g/replicas", kept) == ("text", True)
    assert (folder / KEY_FILE).stat().st_mode & 0o077 == 0


def test_what_is_not_ours_is_not_renewed(tmp_path: Path) -> None:
    seal, _ = seal_of(tmp_path, KEY)
    assert seal.renewed("p", Seal([new_key()]).sealed("p", "t")) is None
    assert seal.renewed("p", "t") is None and seal.renewed("p", "") is None
    assert seal.renewed("p", seal.sealed("elsewhere", "t")) is None


def test_to_forget_keys_there_has_to_be_a_file_that_can_be_read(tmp_path: Path) -> None:
    forget_old_keys(tmp_path)
    (tmp_path / KEY_FILE).write_text("[1, {")
    forget_old_keys(tmp_path)
    assert (tmp_path / KEY_FILE).read_text() == "[1, {"


class Full(Files):
    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        raise OSError(errno.ENOSPC, "no space")


def test_without_its_file_the_seal_still_works_and_says_so(tmp_path: Path) -> None:
    seal, problem = seal_of(tmp_path, KEY, Full())
    assert "cannot be written" in problem
    assert seal.opened("p", seal.sealed("p", "t")) == ("t", True)
    (tmp_path / KEY_FILE).write_text("[1, {")
    seal, problem = seal_of(tmp_path, KEY)
    assert "cannot be read" in problem
    assert seal.opened("p", seal.sealed("p", "t")) == ("t", True)


class Unreadable(Files):
    def open_to_read(self, path: Path) -> int:
        raise OSError(errno.EMFILE, "too many open files")


def test_a_file_that_cannot_be_read_for_a_moment_loses_no_key(tmp_path: Path) -> None:
    first, _ = seal_of(tmp_path, KEY)
    kept = first.sealed("p", "t")
    with pytest.raises(OSError, match="too many open files"):
        seal_of(tmp_path, new_key(), Unreadable(), strict=True)
    _, problem = seal_of(tmp_path, new_key(), Unreadable())
    assert "cannot be read" in problem
    later, problem = seal_of(tmp_path, new_key())
    assert later.opened("p", kept) == ("t", True) and problem == ""


@pytest.mark.parametrize("rubbish", ["sealed:1:", "sealed:1::", "sealed:1:ff:x", "sealed:1:é:x"])
def test_rubbish_is_not_ours(rubbish: str) -> None:
    assert Seal([KEY]).opened("p", rubbish)[1] is False
