"""`Commands` without Ray: refused, told to wait, or made; nobody waits long for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pxrs_ray.actors.coordinator.commands import Commands
from pxrs_ray.errors import ChangeWaits, NotFound, RegistryAway
from pxrs_ray.supervision import changes_under_way

AWAY_MS = 117_000


class Registry:
    def __init__(self) -> None:
        self.away_ms: int | None = None
        self.back = asyncio.Event()
        self.made = 0

    async def change(self) -> str:
        if self.away_ms is not None:
            await self.back.wait()
        self.made += 1
        return "made"


def play(scene: Callable[[Registry, Commands], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        registry = Registry()
        await scene(registry, Commands(lambda: registry.away_ms, lambda: "connection refused"))

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_change_is_made_while_the_registry_is_there() -> None:
    async def scene(registry: Registry, changes: Commands) -> None:
        assert await changes.make("scale billing 3", registry.change) == "made"
        assert changes.waiting() == ()

    play(scene)


def test_a_change_in_an_outage_that_is_known_is_refused_at_once_and_never_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whoever waited for an answer would wait for longer than the scene may take.
    monkeypatch.setattr(changes_under_way, "ANSWER_MS", AWAY_MS)

    async def scene(registry: Registry, changes: Commands) -> None:
        registry.away_ms = AWAY_MS
        told = "registry away for 117 s: scale billing 3 is refused and nothing was changed"
        with pytest.raises(RegistryAway, match=told):
            await changes.make("scale billing 3", registry.change)
        registry.away_ms = None
        registry.back.set()
        await asyncio.sleep(0.05)
        assert registry.made == 0 and changes.waiting() == ()

    play(scene)


def test_a_change_that_was_begun_waits_is_told_so_and_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes_under_way, "ANSWER_MS", 50)

    async def scene(registry: Registry, changes: Commands) -> None:
        registry.away_ms = 10
        making = asyncio.ensure_future(changes.make("scale billing 3", registry.change))
        await asyncio.sleep(0.02)
        registry.away_ms = 2_000
        with pytest.raises(ChangeWaits, match="scale billing 3 waits, and is made when it is back"):
            await making
        assert changes.waiting() == ("scale billing 3",)
        registry.away_ms = None
        registry.back.set()
        await asyncio.sleep(0.05)
        assert registry.made == 1 and changes.waiting() == ()

    play(scene)


def test_what_is_asked_from_memory_is_answered_in_an_outage() -> None:
    async def scene(registry: Registry, changes: Commands) -> None:
        registry.away_ms = AWAY_MS

        async def known() -> int:
            return 7

        assert await changes.ask("the configuration", known) == 7
        with pytest.raises(RegistryAway, match="registry away for 117 s: history must wait"):
            await changes.ask("history", registry.change)

    play(scene)


def test_a_refusal_of_the_change_itself_is_told_as_it_is() -> None:
    async def scene(registry: Registry, changes: Commands) -> None:
        async def unknown() -> None:
            raise NotFound("no group 'x'")

        with pytest.raises(NotFound, match="no group"):
            await changes.make("scale x 3", unknown)
        with pytest.raises(NotFound, match="no group"):
            await changes.ask("history x", unknown)

    play(scene)
