"""How far the logs are known to have come outlives whoever was told."""

from __future__ import annotations

import asyncio

import pytest

from pxrs_ray.actors.coordinator.known_ends import DOCUMENT, KnownEnds
from pxrs_ray.log.log_opening import LOSS_MARGIN
from pxrs_ray.topology.kept_ends import FAR_OFFSETS, KEEP_EVERY_MS


class Kept:
    def __init__(self) -> None:
        self.text = ""

    async def put(self, name: str, text: str) -> None:
        assert name == DOCUMENT
        self.text = text


def test_it_comes_back_as_it_was_and_only_rises() -> None:
    async def scene() -> None:
        ends, kept = KnownEnds(), Kept()
        ends.heard({"a": {2: 7}, "b": {0: 1}})
        ends.heard({"a": {0: 5, 2: 6}})
        await ends.save(kept.put, 0)
        again = KnownEnds()
        again.read(kept.text)
        assert again.of("a") == {0: 5, 1: 0, 2: 7} and again.of("b") == {0: 1}
        assert again.of("c") == {} and again.of("") == {}
        again.only({"b"})
        assert again.of("a") == {}

    asyncio.run(scene())


def test_it_is_kept_soon_when_it_moved_far_and_in_time_when_it_moved_at_all() -> None:
    async def scene() -> None:
        ends, kept = KnownEnds(), Kept()
        assert not ends.is_due(1 << 40), "nothing has moved"
        ends.heard({"a": {0: 1}})
        await ends.save(kept.put, 0)
        ends.heard({"a": {0: 2}})
        assert not ends.is_due(KEEP_EVERY_MS - 1)
        assert ends.is_due(KEEP_EVERY_MS)
        ends.heard({"a": {0: 1 + FAR_OFFSETS}})
        assert ends.is_due(1)

    asyncio.run(scene())


def test_what_could_not_be_kept_is_still_due() -> None:
    async def scene() -> None:
        async def away(name: str, text: str) -> None:
            raise ConnectionError("away")

        ends = KnownEnds()
        ends.heard({"a": {0: FAR_OFFSETS}})
        with pytest.raises(ConnectionError):
            await ends.save(away, 0)
        assert ends.is_due(1)

    asyncio.run(scene())


def test_the_margin_cannot_be_outrun_while_the_registry_is_away_for_an_hour() -> None:
    assert LOSS_MARGIN > 1_000_000 * 3_600
