"""The live page's server: what it shows, whom it lets in, what it lets them do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.dashboard.page_state import PageState, Story
from pxrs_ray.dashboard.server import ACTIONS, OWN_HEADER, SCRIPTS, Server
from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.model import Change
from pxrs_ray.status.places import WAITING, SpreadStep
from tests.cli.pictures import (
    DrawnPage,
    DrawnPages,
    buffer_place,
    buffer_stats,
    group_status,
    topology_status,
)

TOKEN = "s3cret"
OURS = {OWN_HEADER: "1"}


class Source(DrawnPage):
    """A topology that is always the same, and notes what it is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def look(self) -> PageState:
        self.looks += 1
        if self.looks == 2:
            raise NotFound("gone for a moment")
        away = buffer_place(1, state=WAITING, told="waits for host 10.0.0.2, away for 40 s")
        status = topology_status(
            group_status(),
            places=(buffer_place(0), away),
            uneven=(SpreadStep(1, "10.0.0.2", "10.0.0.3"),),
        )
        return PageState(status, {0: buffer_stats()})

    def act(self, action: str, group: str, value: Any) -> str:
        if group != "billing":
            raise NotFound(f"no group {group}")
        self.done.append((action, group, value))
        return "done"


def served(
    test: Callable[[TestClient[Any, Any], Source], Awaitable[None]], *, enter: bool = True
) -> None:
    """Run `test` beside a page; `enter` opens the link with the token first, as people do."""

    async def run() -> None:
        source = Source()
        async with TestClient(
            TestServer(Server(DrawnPages(shop=source), TOKEN, 0.01).app())
        ) as client:
            if enter:
                assert (await client.get("/", params={"token": TOKEN})).status == 200
            await asyncio.wait_for(test(client, source), 30)

    asyncio.run(run())


async def told(stream: Any) -> AsyncIterator[tuple[str, Any]]:
    """The events of a page as they come."""
    while True:
        kind = (await stream.content.readline()).decode().removeprefix("event: ").strip()
        data = json.loads((await stream.content.readline()).decode().removeprefix("data: "))
        await stream.content.readline()
        yield kind, data


def change(version: int, kind: str, at_ms: int, cause: str) -> Change:
    return Change(version, kind, 1, "a", 1, 1, 0, cause, at_ms)


def test_a_page_is_told_the_past_then_pictures_and_troubles() -> None:
    async def test(client: TestClient[Any, Any], source: Source) -> None:
        assert source.looks == 0, "nobody looks, so nobody is asked"
        kinds, picture = [], {}
        async for kind, data in told(await client.get("/events")):
            if kind != "topologies":
                kinds.append(kind)
            picture = data if kind == "picture" else picture
            if len(kinds) == 4:
                break
        assert kinds == ["past", "picture", "trouble", "picture"]
        assert picture["topology"] == "shop" and len(picture["groups"]) == 1
        assert picture["groups"][0]["partitions"]["owner"][:4] == [0, 1, 2, 0]
        first, second = picture["buffers"]
        assert [b["away"] for b in picture["buffers"]] == [False, True]
        assert (first["host"], first["state"], first["well"]) == ("10.0.0.1", "at home", True)
        assert second["state"].startswith("waits for host") and not second["well"]
        (uneven,) = [p for p in picture["problems"] if p["kind"] == "buffers_uneven"]
        assert "pxrs move 1 10.0.0.3" in uneven["remedy"]

    served(test)


def test_the_page_and_its_parts_are_served_and_fetch_nothing_from_elsewhere() -> None:
    async def test(client: TestClient[Any, Any], _: Source) -> None:
        for name in ("", *SCRIPTS, "style.css"):
            answer = await client.get(f"/{name}")
            text = await answer.text()
            assert answer.status == 200 and "://" not in text
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]

    served(test)


def test_actions_are_carried_out_and_errors_told() -> None:
    async def test(client: TestClient[Any, Any], source: Source) -> None:
        async def act(**asked: Any) -> tuple[int, dict[str, str]]:
            answer = await client.post("/actions", json=asked, headers=OURS)
            return answer.status, await answer.json()

        assert await act(action="scale", group="billing", value=3) == (200, {"done": "done"})
        assert source.done == [("scale", "billing", 3)]
        assert await act(action="pause", group="x") == (409, {"error": "no group x"})
        assert (await act(action="drop", group="billing"))[0] == 400
        assert (await act(group="billing"))[0] == 400

    served(test)


def test_other_sites_cannot_act() -> None:
    async def test(client: TestClient[Any, Any], source: Source) -> None:
        wanted = {"action": "pause", "group": "billing"}
        assert (await client.post("/actions", json=wanted)).status == 403
        assert source.done == []

    served(test)


def test_nothing_is_served_without_the_token_on_this_machine_too() -> None:
    async def test(client: TestClient[Any, Any], source: Source) -> None:
        wanted = {"action": "pause", "group": "billing"}
        for path in ("/", "/events", "/app.js", "/?token=wrong", "/?token=%ff"):
            assert (await client.get(path)).status == 401
        assert (await client.post("/actions", json=wanted, headers=OURS)).status == 401
        assert source.done == []
        assert (await client.get("/", params={"token": TOKEN})).status == 200
        assert (await client.get("/app.js")).status == 200, "the cookie carries the token on"

    served(test, enter=False)
    with pytest.raises(UsageError, match="token"):
        Server(DrawnPages(), "")


DEEP = b"[" * 50_000


def test_whatever_is_sent_the_page_answers_and_goes_on() -> None:
    paths = st.one_of(st.sampled_from(["/", "/actions", "/app.js"]), st.text(max_size=30))
    values: st.SearchStrategy[Any] = st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
    asked = st.fixed_dictionaries({}, optional=dict.fromkeys(("action", "group", "value"), values))
    bodies = st.one_of(
        st.binary(max_size=200), st.just(DEEP), st.builds(lambda v: json.dumps(v).encode(), asked)
    )
    calls = st.lists(st.tuples(st.sampled_from(["GET", "POST", "PUT"]), paths, bodies), max_size=20)

    @settings(max_examples=30, deadline=None)
    @given(calls)
    def fuzz(sent: list[tuple[str, str, bytes]]) -> None:
        async def test(client: TestClient[Any, Any], source: Source) -> None:
            for method, path, body in sent:
                url = "/" + quote(path.removeprefix("/"))
                kind = {**OURS, "Content-Type": "application/json"}
                answer = await client.request(method, url, data=body, headers=kind)
                assert answer.status < 500, (method, path, body)
            assert (await client.get("/")).status == 200
            assert {name for name, _, _ in source.done} <= set(ACTIONS)

        served(test)

    fuzz()


def test_changes_of_one_cause_are_one_event() -> None:
    story = Story()
    changes = (
        change(1, "release", 1_000, "death of b"),
        change(2, "claim", 1_010, "death of b"),
        change(3, "claim", 1_010, "death of b"),
        change(4, "claim", 9_000, "death of b"),
        change(5, "joined", 9_000, "join of c"),
    )
    look = PageState(topology_status(group_status()), {}, {"billing": changes})
    (group,) = story.tell(10_000, look)["groups"]
    assert [(e["cause"], e["moved"]) for e in group["events"]] == [
        ("death of b", 2),
        ("death of b", 1),
        ("join of c", 0),
    ]
    assert story.past()["billing"][0]["at_ms"] == 10_000


def test_health_needs_no_token_and_tells_nothing_else() -> None:
    async def test(client: TestClient[Any, Any], source: Source) -> None:
        answer = await client.get("/healthz")
        assert (answer.status, await answer.text()) == (200, "ok\n")
        source.is_away = True
        await asyncio.sleep(0.02)
        answer = await client.get("/healthz")
        assert (answer.status, await answer.text()) == (503, "NotFound\n")
        for path in ("/messages", "/aside", "/stack", "/events"):
            assert (await client.get(path)).status == 401

    served(test, enter=False)


def test_messages_and_what_was_given_up_are_asked_for() -> None:
    async def test(client: TestClient[Any, Any], source: Source) -> None:
        answer = await client.get("/messages", params={"queue": "orders", "key": ""})
        assert (await answer.json())[0]["payload"] == "<b>3</b>"
        wrong = await client.get("/messages", params={"queue": "orders", "partition": "P9"})
        assert wrong.status == 409 and "no partition 9" in (await wrong.json())["error"]
        letters = await (await client.get("/aside", params={"group": "billing"})).json()
        assert letters["letters"][0]["place"] == "P1@4"
        stack = await (await client.get("/stack", params={"consumer": "billing/b-0"})).json()
        assert "in charge" in stack["text"] and stack["ray"].startswith("http")
        wrong = await client.get("/stack", params={"consumer": "b-0"})
        assert wrong.status == 409 and "no consumer 'b-0'" in (await wrong.json())["error"]

    served(test)


def test_the_end_waits_for_no_page_that_is_open() -> None:
    async def run() -> None:
        source = Source()
        client = TestClient(TestServer(Server(DrawnPages(shop=source), TOKEN, 60).app()))
        await client.start_server()
        await client.get("/", params={"token": TOKEN})
        stream = await client.get("/events")
        assert await stream.content.readline()
        began_s = asyncio.get_running_loop().time()
        await client.server.runner.cleanup()  # type: ignore[union-attr]
        assert asyncio.get_running_loop().time() - began_s < 1
        told = (await asyncio.wait_for(stream.content.read(), 5)).decode()
        assert "the server of this page has ended" in told
        await client.close()

    asyncio.run(run())
