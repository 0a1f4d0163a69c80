"""`ShownTopology`: one topology on the page, and the pages that show it.

Rules of this file. A topology is looked at once an interval while a page shows it, and every
`GLANCE_S` while pages show others only; not at all while no page is open. Each has a loop of its
own: one that does not answer holds up no other. A page that is slow misses pictures; it never makes
anybody wait.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from pxrs_ray.clock import wall_ms
from pxrs_ray.dashboard.page_state import PageState, Story
from pxrs_ray.errors import PxrsError
from pxrs_ray.status.glance import Glance, glance_of, unanswered
from pxrs_ray.status.past import Point
from pxrs_ray.supervision.supervisor import off_loop

WAITING_MAX = 3
# How often a topology is looked at that no open page shows.
GLANCE_S = 5.0


class PageSource(Protocol):
    """Supplies page states of one topology and carries out actions. Called on threads."""

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


class PageSources(Protocol):
    """The topologies that there are. Called on threads."""

    def names(self) -> Sequence[str]:
        """Their names now; those whose coordinator is missing come last. Raises PxrsError."""

    def of(self, topology: str) -> PageSource:
        """The one of that name; asks nobody."""


class ShownTopology:
    """One topology: what the server remembers of it, and the pages that show it."""

    def __init__(self, name: str, source: PageSource, interval_s: float) -> None:
        self.name = name
        self.source = source
        self.glance = Glance(name)
        self._interval_s = interval_s
        self._story = Story()
        self._pages: set[asyncio.Queue[str]] = set()
        self._begun = False
        self._opened = asyncio.Event()
        self._health_at_s, self._health = float("-inf"), ""

    @property
    def is_shown(self) -> bool:
        """Whether a page that is open shows it."""
        return bool(self._pages)

    async def begin(self) -> str:
        """Ask once for what was before this server; answer the event that tells a page of it."""
        if not self._begun:
            self._begun = True
            with suppress(PxrsError):
                self._story.begin(await off_loop(self.source.past))
        return event("past", self._story.past())

    def open_page(self) -> asyncio.Queue[str]:
        """A page shows it from now on: events for that come here."""
        pictures: asyncio.Queue[str] = asyncio.Queue(WAITING_MAX)
        self._pages.add(pictures)
        self._opened.set()
        return pictures

    def close_page(self, pictures: asyncio.Queue[str]) -> None:
        """It does not any more."""
        self._pages.discard(pictures)
        if not self._pages:
            self._opened.clear()

    def tell(self, text: str) -> None:
        """Send an event to every page that shows it."""
        for pictures in self._pages:
            if pictures.full():
                pictures.get_nowait()
            pictures.put_nowait(text)

    def end(self, text: str) -> None:
        """Send the last event: nobody reads what was before it."""
        for pictures in self._pages:
            while not pictures.empty():
                pictures.get_nowait()
            pictures.put_nowait(text)

    async def look_for_ever(
        self, wanted: asyncio.Event, glanced: Callable[[], None], glance_s: float
    ) -> None:
        """Look while `wanted` is set; `glanced` is called when its glance has changed."""
        while True:
            await wanted.wait()
            began_s = time.monotonic()
            before = self.glance
            self.tell(await self._look())
            if self.glance != before:
                glanced()
            pause_s = self._interval_s if self._pages else glance_s
            await self._pause(max(0.0, began_s + pause_s - time.monotonic()))

    async def _pause(self, pause_s: float) -> None:
        if self._pages:
            await asyncio.sleep(pause_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._opened.wait()

    async def _look(self) -> str:
        try:
            look = await off_loop(self.source.look)
        except PxrsError as error:
            self.glance = unanswered(self.name, error)
            return event("trouble", {"error": str(error)})
        self.glance = glance_of(look.status)
        return event("picture", self._story.tell(wall_ms(), look))

    async def health(self) -> str:
        """What keeps it from answering; '' when nothing does. Asked once an interval."""
        if time.monotonic() - self._health_at_s >= self._interval_s:
            self._health_at_s = time.monotonic()
            try:
                await off_loop(self.source.check)
                self._health = ""
            except PxrsError as error:
                self._health = type(error).__name__
        return self._health


def event(kind: str, value: Any) -> str:
    """One server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"
