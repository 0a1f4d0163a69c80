"""The loops of the live page's server, each with a call that may fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.dashboard import server as page_server
from pxrs_ray.errors import StoreUnavailable
from tests.actors.test_supervision import Fails


async def _page(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    def look() -> Any:
        fails()
        raise StoreUnavailable("shown as a trouble")

    patch.setattr(page_server, "GLANCE_S", 0.01)
    one = SimpleNamespace(names=lambda: ["t"], of=lambda _: SimpleNamespace(look=look))
    server = page_server.Server(one, "token", 0.01)  # type: ignore[arg-type]
    server._wanted.set()
    looking = server._looking(None)  # type: ignore[arg-type]
    await anext(looking)
    return lambda: looking.aclose()


async def _pages(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(page_server, "GLANCE_S", 0.01)
    many = SimpleNamespace(names=lambda: [fails()][:0])
    server = page_server.Server(many, "token", 0.01)  # type: ignore[arg-type]
    server._wanted.set()
    looking = server._looking(None)  # type: ignore[arg-type]
    await anext(looking)
    return lambda: looking.aclose()


MADE = {"looking of the page": _page, "topologies of the page": _pages}
