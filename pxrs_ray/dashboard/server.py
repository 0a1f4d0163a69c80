"""The server of the live page: one page, one stream of server-sent events, and requests that act.

Rules of this file. It asks the topology once an interval however many pages are open, and not at
all while none is. Every request needs the token, on this machine too, because other users share it.
A request that another site makes a browser send lacks the token's cookie, and a header that no form
can set.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any, Protocol

from aiohttp import web

from pxrs_ray.clock import wall_ms
from pxrs_ray.dashboard.page_state import PageState, Story
from pxrs_ray.errors import PxrsError, UsageError
from pxrs_ray.status.past import Point
from pxrs_ray.supervision.supervisor import Supervisor, off_loop

WAITING_MAX = 3
OWN_HEADER = "X-PXRS"
ACTIONS = (
    "scale",
    "pause",
    "resume",
    "seek",
    "plan_seek",
    "produce",
    "retry_letters",
    "retry_letter",
    "drop_letter",
    "retry_keys",
)
TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}
HEALTH = "/healthz"
SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class PageSource(Protocol):
    """Supplies page states and carries out actions. Called on threads."""

    def look(self) -> PageState:
        """The topology now. Raises PxrsError when it cannot be asked."""

    def past(self) -> Mapping[str, Sequence[Point]]:
        """The last hour of each group, as the coordinator has kept it."""

    def check(self) -> None:
        """Raise PxrsError when the topology does not answer."""

    def act(self, action: str, group: str, value: Any) -> str:
        """Carry out one of ACTIONS; answer what was done, in words."""

    def messages(self, queue: str, asked: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """Messages of a queue that are as asked for."""

    def aside(self, group: str) -> Mapping[str, Any]:
        """What a group has given up: dead letters, and keys in quarantine."""

    def stack(self, consumer: str) -> Mapping[str, Any]:
        """Where the threads of GROUP/CONSUMER are, as `text`; `ray` is Ray's own page of it."""


class Server:
    """The page of one topology."""

    def __init__(self, source: PageSource, token: str, interval_s: float = 1.0) -> None:
        if not token:
            raise UsageError("the page needs a token")
        self._source = source
        self._interval_s = interval_s
        self._token = token
        self._story = Story()
        self._pages: set[asyncio.Queue[str]] = set()
        self._begun = False
        self._ends = asyncio.Event()
        self._health_at_s, self._health = float("-inf"), ""
        self._wanted = asyncio.Event()

    def app(self) -> web.Application:
        """The application, for `web.run_app` or a test."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._static("index.html"))
        for name in ("app.js", "charts.js", "messages.js", "style.css", "favicon.svg"):
            app.router.add_get(f"/{name}", self._static(name))
        app.router.add_get("/events", self._events)
        app.router.add_get("/messages", self._messages)
        app.router.add_get("/aside", self._aside)
        app.router.add_get("/stack", self._stack)
        app.router.add_get(HEALTH, self._healthz)
        app.router.add_post("/actions", self._act)
        app.on_shutdown.append(self._end)
        app.cleanup_ctx.append(self._looking)
        return app

    # --- who may ----------------------------------------------------------------------------------

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if request.path == HEALTH:  # it tells nothing but whether all is well
            return await handler(request)
        given = request.query.get("token") or request.cookies.get(_cookie(request), "")
        if not hmac.compare_digest(given.encode(errors="replace"), self._token.encode()):
            text = "the token is missing or wrong: open the link that `pxrs dashboard` printed\n"
            return web.Response(status=401, text=text)
        if request.method != "GET" and OWN_HEADER not in request.headers:
            return web.Response(status=403, text="only the page itself can act\n")
        return await handler(request)

    # --- what is served ---------------------------------------------------------------------------

    def _static(self, name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        text = (files("pxrs_ray.dashboard") / "static" / name).read_text()
        kind = TYPES[name.rpartition(".")[2]]

        async def serve(request: web.Request) -> web.Response:
            response = web.Response(text=text, content_type=kind, headers=SAFE)
            if "token" in request.query:
                response.set_cookie(_cookie(request), self._token, httponly=True, samesite="Strict")
            return response

        return serve

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**SAFE, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        pictures: asyncio.Queue[str] = asyncio.Queue(WAITING_MAX)
        await self._begin()
        await response.write(_event("past", self._story.past()).encode())
        self._pages.add(pictures)
        self._wanted.set()
        with suppress(ConnectionResetError):
            try:
                while not self._ends.is_set():
                    await response.write((await pictures.get()).encode())
            finally:
                self._pages.discard(pictures)
                if not self._pages:
                    self._wanted.clear()
        return response

    async def _begin(self) -> None:
        """Ask once for what was before this server."""
        if not self._begun:
            self._begun = True
            with suppress(PxrsError):
                self._story.begin(await off_loop(self._source.past))

    async def _end(self, _: web.Application) -> None:
        """Let every open page hear that this is the end: nobody waits for a page to go."""
        self._ends.set()
        for pictures in list(self._pages):
            while not pictures.empty():
                pictures.get_nowait()
            pictures.put_nowait(_event("trouble", {"error": "the server of this page has ended"}))

    async def _healthz(self, _: web.Request) -> web.Response:
        """For probes, without a token: whether the topology answers. Asked once an interval."""
        if time.monotonic() - self._health_at_s >= self._interval_s:
            self._health_at_s = time.monotonic()
            try:
                await off_loop(self._source.check)
                self._health = ""
            except PxrsError as error:
                self._health = type(error).__name__
        if self._health:
            return web.Response(status=503, text=f"{self._health}\n", headers=SAFE)
        return web.Response(text="ok\n", headers=SAFE)

    async def _messages(self, request: web.Request) -> web.Response:
        asked = {name: text for name, text in request.query.items() if text}
        return await self._answered(self._source.messages, asked.pop("queue", ""), asked)

    async def _aside(self, request: web.Request) -> web.Response:
        return await self._answered(self._source.aside, request.query.get("group", ""))

    async def _stack(self, request: web.Request) -> web.Response:
        return await self._answered(self._source.stack, request.query.get("consumer", ""))

    async def _answered(self, call: Callable[..., Any], *arguments: Any) -> web.Response:
        try:
            found = await off_loop(call, *arguments)
        except PxrsError as error:
            return web.json_response({"error": str(error)}, status=409)
        return web.json_response(found, headers=SAFE)

    async def _act(self, request: web.Request) -> web.Response:
        try:
            asked = await request.json()
            action, group = str(asked["action"]), str(asked["group"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return web.json_response({"error": "this is not an action"}, status=400)
        if action not in ACTIONS:
            return web.json_response({"error": f"there is no action {action!r}"}, status=400)
        try:
            done = await off_loop(self._source.act, action, group, asked.get("value"))
        except PxrsError as error:
            return web.json_response({"error": str(error)}, status=409)
        return web.json_response({"done": done})

    # --- looking ----------------------------------------------------------------------------------

    async def _looking(self, _: web.Application) -> AsyncIterator[None]:
        supervisor = Supervisor("the page")
        supervisor.keep("looking", self._look_for_ever)
        yield
        await supervisor.close()

    async def _look_for_ever(self) -> None:
        while True:
            await self._wanted.wait()
            began_s = time.monotonic()
            self._tell_all(await self._look())
            await asyncio.sleep(max(0.0, began_s + self._interval_s - time.monotonic()))

    async def _look(self) -> str:
        try:
            look = await off_loop(self._source.look)
        except PxrsError as error:
            return _event("trouble", {"error": str(error)})
        return _event("picture", self._story.tell(wall_ms(), look))

    def _tell_all(self, text: str) -> None:
        for pictures in self._pages:
            # A page that is slow misses pictures; it never makes anybody wait.
            if pictures.full():
                pictures.get_nowait()
            pictures.put_nowait(text)


def _event(kind: str, value: Mapping[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"


def _cookie(request: web.Request) -> str:
    """Browsers keep cookies by host alone: the pages of two topologies may not share one."""
    return f"pxrs-token-{request.url.port}"
