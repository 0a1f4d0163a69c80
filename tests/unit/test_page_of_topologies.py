"""The live page of several topologies: each at a glance, and requests about the one they name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pxrs_ray.dashboard import server
from pxrs_ray.dashboard.page_state import PageState
from pxrs_ray.dashboard.server import Server
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.status.answers import TopologyStatus
from tests.cli.pictures import DrawnPage, DrawnPages, Missing, group_status, topology_status
from tests.unit.test_dashboard import OURS, TOKEN, told


class Named(DrawnPage):
    """A topology that is as it is given."""

    def __init__(self, status: TopologyStatus) -> None:
        super().__init__()
        self.status = status
        self.looks = 0

    def look(self) -> PageState:
        self.looks += 1
        self.check()
        return PageState(self.status, {})


class Hangs(Named):
    """One whose coordinator is frozen: who looks waits."""

    def __init__(self) -> None:
        super().__init__(topology_status())
        self.let_go = threading.Event()

    def look(self) -> PageState:
        self.let_go.wait(20)
        raise DeadlineExceeded("its coordinator has not answered for 3 s")


def beside(sources: DrawnPages, test: Callable[[TestClient[Any, Any]], Awaitable[None]]) -> None:
    """Run `test` beside a page of those topologies."""

    async def run() -> None:
        async with TestClient(TestServer(Server(sources, TOKEN, 0.01).app())) as client:
            await client.get("/", params={"token": TOKEN})
            await asyncio.wait_for(test(client), 30)

    asyncio.run(run())


@pytest.fixture
def quick_glances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GLANCE_S", 0.01)


ILL = group_status(problem="odd")


@pytest.mark.usefixtures("quick_glances")
def test_each_topology_is_told_at_a_glance_and_one_that_hangs_holds_up_no_other() -> None:
    hangs = Hangs()
    sources = DrawnPages(
        hung=hangs,
        ill=Named(topology_status(ILL, topology="ill")),
        late=Named(topology_status(group_status(lag=10_000), topology="late")),
        gone=Missing(),
        well=Named(topology_status(group_status(), topology="well")),
    )

    async def test(client: TestClient[Any, Any]) -> None:
        wanted = {
            "gone": ("bad", "no coordinator"),
            "hung": ("", ""),
            "ill": ("bad", "1 problem"),
            "late": ("warn", "1 warning"),
            "well": ("good", "ok"),
        }
        pictures = 0
        async for kind, data in told(await client.get("/events", params={"topology": "well"})):
            if kind == "picture":
                assert data["topology"] == "well"
                pictures += 1
            found = data if kind == "topologies" else []
            if pictures >= 3 and {g["topology"]: (g["tone"], g["words"]) for g in found} == wanted:
                hangs.let_go.set()
                wanted["hung"] = ("bad", "does not answer")
                if found[1]["words"]:
                    return

    beside(sources, test)


@pytest.mark.usefixtures("quick_glances")
def test_topologies_that_come_and_go_are_followed_and_one_that_is_shown_stays() -> None:
    shop, other = (Named(topology_status(topology=name)) for name in ("shop", "other"))
    sources = DrawnPages(shop=shop)

    async def test(client: TestClient[Any, Any]) -> None:
        events = told(await client.get("/events"))

        async def until(*names: str) -> None:
            async for kind, data in events:
                if kind == "topologies" and [g["topology"] for g in data] == list(names):
                    return

        await until("shop")
        sources.pages = {"other": other, "shop": shop}
        await until("other", "shop")
        sources.pages = {"shop": shop}
        await until("shop")
        sources.pages, shop.is_away = {"other": other}, True
        await until("other", "shop")  # with its trouble, until nobody shows it
        async for kind, data in events:
            if kind == "trouble":
                assert data["error"] == "no topology 'shop' runs"
                return

    beside(sources, test)


def test_a_request_is_about_the_topology_that_it_names() -> None:
    shop, other = Named(topology_status()), Named(topology_status(topology="other"))

    async def test(client: TestClient[Any, Any]) -> None:
        wanted = {"action": "pause", "group": "billing"}
        for name in ("other", "nowhere"):
            answer = await client.post(f"/actions?topology={name}", json=wanted, headers=OURS)
            assert answer.status == (200 if name == "other" else 409)
        assert (shop.done, other.done) == ([], [("pause", "billing", None)])
        assert shop.looks == other.looks == 0, "nobody looks, so nobody is asked"

    beside(DrawnPages(shop=shop, other=other), test)


def test_health_is_that_of_all_topologies_or_of_the_one_that_is_named() -> None:
    shop, other = Named(topology_status()), Named(topology_status(topology="other"))
    other.is_away = True

    async def test(client: TestClient[Any, Any]) -> None:
        for asked, status in (("", 503), ("?topology=shop", 200), ("?topology=other", 503)):
            assert (await client.get(f"/healthz{asked}")).status == status
        assert (await client.get("/healthz?topology=nowhere")).status == 503

    beside(DrawnPages(shop=shop, other=other), test)
