"""The server of the live page: one page, one stream of server-sent events, and requests that act.

Rules of this file. A request names its topology (`?topology=shop`); one that names none is about
the first that there is. Every request needs the token, on this machine too, because other users
share it. A request that another site makes a browser send lacks the token's cookie, and a header
that no form can set.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import Any

from aiohttp import web

from pxrs_ray.dashboard.shown_topology import GLANCE_S, PageSources, ShownTopology, event
from pxrs_ray.errors import PxrsError, UsageError
from pxrs_ray.supervision.supervisor import Supervisor, off_loop

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
SCRIPTS = ("app.js", "charts.js", "messages.js", "topologies.js")
HEALTH = "/healthz"
SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Server:
    """The page of the topologies that `sources` names."""

    def __init__(self, sources: PageSources, token: str, interval_s: float = 1.0) -> None:
        if not token:
            raise UsageError("the page needs a token")
        self._sources = sources
        self._interval_s = interval_s
        self._token = token
        self._shown: dict[str, ShownTopology] = {}
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._supervisor = Supervisor("the page")
        self._named_at_s, self._first = float("-inf"), ""
        self._ends = asyncio.Event()
        self._wanted = asyncio.Event()

    def app(self) -> web.Application:
        """The application, for `web.run_app` or a test."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._static("index.html"))
        for name in (*SCRIPTS, "style.css", "favicon.svg"):
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
        shown = await self._of(request)
        await response.write((await shown.begin()).encode())
        await response.write(self._glances().encode())
        pictures = shown.open_page()
        self._wanted.set()
        with suppress(ConnectionResetError):
            try:
                while not self._ends.is_set():
                    await response.write((await pictures.get()).encode())
            finally:
                shown.close_page(pictures)
                if not any(each.is_shown for each in self._shown.values()):
                    self._wanted.clear()
        return response

    async def _end(self, _: web.Application) -> None:
        """Let every open page hear that this is the end: nobody waits for a page to go."""
        self._ends.set()
        for shown in self._shown.values():
            shown.end(event("trouble", {"error": "the server of this page has ended"}))

    async def _healthz(self, request: web.Request) -> web.Response:
        """For probes, without a token: whether the topologies answer, or the one that is named."""
        try:
            await self._look_for_names(self._interval_s)
        except PxrsError as error:
            return web.Response(status=503, text=f"{type(error).__name__}\n", headers=SAFE)
        wanted = request.query.get("topology")
        asked = [each for name, each in self._shown.items() if wanted in (None, name)]
        found = await asyncio.gather(*(each.health() for each in asked))
        if wrong := "" if asked and not any(found) else next(filter(None, found), "NotFound"):
            return web.Response(status=503, text=f"{wrong}\n", headers=SAFE)
        return web.Response(text="ok\n", headers=SAFE)

    async def _messages(self, request: web.Request) -> web.Response:
        asked = {name: text for name, text in request.query.items() if text}
        asked.pop("topology", None)
        shown = await self._of(request)
        return await self._answered(shown.source.messages, asked.pop("queue", ""), asked)

    async def _aside(self, request: web.Request) -> web.Response:
        shown = await self._of(request)
        return await self._answered(shown.source.aside, request.query.get("group", ""))

    async def _stack(self, request: web.Request) -> web.Response:
        shown = await self._of(request)
        return await self._answered(shown.source.stack, request.query.get("consumer", ""))

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
        source = (await self._of(request)).source
        try:
            done = await off_loop(source.act, action, group, asked.get("value"))
        except PxrsError as error:
            return web.json_response({"error": str(error)}, status=409)
        return web.json_response({"done": done})

    # --- looking ----------------------------------------------------------------------------------

    async def _looking(self, _: web.Application) -> AsyncIterator[None]:
        self._supervisor.keep("its topologies", self._names_for_ever)
        yield
        await self._supervisor.close()

    async def _of(self, request: web.Request) -> ShownTopology:
        """The topology that a request is about; one that nobody knows is shown as one that does
        not run, until it does."""
        name = request.query.get("topology", "")
        with suppress(PxrsError):
            await self._look_for_names(0.0 if name not in self._shown else GLANCE_S)
        name = name or self._first
        return self._shown.get(name) or self._show(name)

    async def _names_for_ever(self) -> None:
        while True:
            await self._wanted.wait()
            with suppress(PxrsError):  # then each topology says so
                await self._look_for_names(GLANCE_S)
            self._glanced()  # again, for pages that were too slow for the last one
            await asyncio.sleep(GLANCE_S)

    async def _look_for_names(self, older_than_s: float) -> None:
        """Follow which topologies there are, where nobody has looked since so long."""
        if time.monotonic() - self._named_at_s < older_than_s:
            return
        names = await off_loop(self._sources.names)
        self._named_at_s = time.monotonic()
        self._first = names[0] if names else ""
        for name in names:
            if name not in self._shown:
                self._show(name)
        for name, shown in list(self._shown.items()):
            if name not in names and not shown.is_shown:
                del self._shown[name]
                self._loops.pop(name).cancel()
                self._glanced()

    def _show(self, name: str) -> ShownTopology:
        shown = ShownTopology(name, self._sources.of(name), self._interval_s)
        self._shown[name] = shown
        look = partial(shown.look_for_ever, self._wanted, self._glanced, GLANCE_S)
        self._loops[name] = self._supervisor.keep("looking", look)
        self._glanced()
        return shown

    def _glances(self) -> str:
        found = sorted(self._shown.values(), key=lambda shown: shown.name)
        return event("topologies", [each.glance.plain() for each in found])

    def _glanced(self) -> None:
        text = self._glances()
        for shown in self._shown.values():
            shown.tell(text)


def _cookie(request: web.Request) -> str:
    """Browsers keep cookies by host alone: the pages of two topologies may not share one."""
    return f"pxrs-token-{request.url.port}"
