"""What is asked of buffers and of the registry grows with what changes, not with what is there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pxrs_ray.actors.coordinator.coordinator import Coordinator
from pxrs_ray.config import PxrsConfig
from tests.actors.fake_buffers import stand_in

QUEUES = 20


def test_a_group_is_made_without_a_word_about_other_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = stand_in(monkeypatch)
    queues = {f"q{number}": {"partitions": 2} for number in range(QUEUES)}
    config = PxrsConfig(name="shop", data_dir=tmp_path, lease_ttl_seconds=1.0, queues=queues)

    async def scene() -> None:
        found = Coordinator(config, 2)
        await found.ping(begin=True)
        assert [len(fake.opened) for fake in fakes] == [QUEUES, QUEUES]
        for fake in fakes:
            fake.calls.clear()
        assert await found.group("g", "q3", {}) == "g"
        assert [fake.calls.count("open") for fake in fakes] == [1, 1]
        await found.shutdown()

    asyncio.run(asyncio.wait_for(scene(), 30))
