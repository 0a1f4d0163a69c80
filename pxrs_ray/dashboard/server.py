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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any, Protocol

from aiohttp import web

from pxrs_ray.clock import wall_ms
from pxrs_ray.dashboard.page_state import PageState, Story
from pxrs_ray.errors import PxrsError, UsageError
from pxrs_ray.supervision.supervisor import Supervisor, off_loop

WAITING_MAX = 3
OWN_HEADER = "X-PXRS"
ACTIONS = ("scale", "pause", "resume", "seek")
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
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

    def act(self, action: str, group: str, value: Any) -> str:
        """Carry out one of ACTIONS; answer what was done, in words."""


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
        self._wanted = asyncio.Event()

    def app(self) -> web.Application:
        """The application, for `web.run_app` or a test."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._static("index.html"))
        for name in ("app.js", "charts.js", "style.css"):
            app.router.add_get(f"/{name}", self._static(name))
        app.router.add_get("/events", self._events)
        app.router.add_post("/actions", self._act)
        app.cleanup_ctx.append(self._looking)
        return app

    # --- who may ----------------------------------------------------------------------------------

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
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
        await response.write(_event("past", self._story.past()).encode())
        self._pages.add(pictures)
        self._wanted.set()
        with suppress(ConnectionResetError):
            try:
                while True:
                    await response.write((await pictures.get()).encode())
            finally:
                self._pages.discard(pictures)
                if not self._pages:
                    self._wanted.clear()
        return response

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
