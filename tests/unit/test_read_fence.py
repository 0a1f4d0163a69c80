"""The reading fence: the highest epoch wins, for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.errors import Fenced
from pxrs_ray.log.read_fence import ReadFence


def test_a_lower_epoch_is_refused_once_a_higher_one_was_seen(tmp_path: Path) -> None:
    with ReadFence(tmp_path / "fence") as fence:
        fence.check("q", "g", 1, 3)
        fence.check("q", "g", 1, 3)
        fence.check("q", "g", 1, 5)
        with pytest.raises(Fenced, match="with epoch 4, but epoch 5"):
            fence.check("q", "g", 1, 4)
        fence.check("q", "g", 2, 0)
        fence.check("q", "other", 1, 0)
        fence.check("other", "g", 1, 0)


def test_a_fence_is_raised_by_hand_and_never_lowered(tmp_path: Path) -> None:
    with ReadFence(tmp_path / "fence") as fence:
        fence.fence("q", "g", {1: 5, 2: 1})
        fence.fence("q", "g", {1: 2})
        with pytest.raises(Fenced):
            fence.check("q", "g", 1, 4)
        fence.check("q", "g", 1, 5)


def test_a_restart_remembers_whatever_a_kill_left(tmp_path: Path) -> None:
    path = tmp_path / "fence"
    killed = ReadFence(path)
    killed.fence("q", "g", {1: 5, 2: 7})
    with path.open("a") as file:
        file.write('["q", "g", 3, 1')  # cut by the kill
    with ReadFence(path) as fence:
        for partition, epoch in ((1, 4), (2, 6)):
            with pytest.raises(Fenced):
                fence.check("q", "g", partition, epoch)
        fence.check("q", "g", 3, 0)
    killed.close()


def test_the_file_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "fence"
    with ReadFence(path) as fence:
        for epoch in range(30_000):
            fence.check("q", "g", 1, epoch)
        assert len(path.read_text().splitlines()) <= 10_001
        with pytest.raises(Fenced):
            fence.check("q", "g", 1, 29_998)


def test_groups_and_queues_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    with ReadFence(tmp_path / "fence") as fence:
        fence.fence("q", "g", {1: 5})
        fence.fence("q", "h", {1: 5})
        fence.fence("r", "g", {1: 5})
        fence.drop_group("q", "g")
        fence.check("q", "g", 1, 0)
        with pytest.raises(Fenced):
            fence.check("q", "h", 1, 0)
        fence.drop_queue("q")
        fence.check("q", "h", 1, 0)
        with pytest.raises(Fenced):
            fence.check("r", "g", 1, 0)
