"""What a buffer has taken of its disk when it could not begin to serve."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.buffer import serving_state
from pxrs_ray.actors.buffer.serving_state import ServingState
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.log.log_manager import LogManager
from tests.logs import NOW_MS
from tests.settings import log_limits


def test_a_start_that_fails_after_the_logs_were_opened_leaves_no_lock_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t"
    before = LogManager(folder, 0, 1, NOW_MS)
    before.open(QueueSpec("q", 1, log_limits()), {}, NOW_MS, make=True)
    before.close()

    def broken(*_: Any) -> None:
        raise LogCorrupted("no fence")

    monkeypatch.setattr(serving_state, "ReadFence", broken)

    async def begin() -> None:
        ServingState("t", 0, 1, folder, Files(), "")

    with pytest.raises(LogCorrupted):
        asyncio.run(begin())
    after = LogManager(folder, 0, 1, NOW_MS)
    after.open(QueueSpec("q", 1, log_limits()), {}, NOW_MS, make=False)
    assert after.log("q", 0).state == "open"
    after.close()
