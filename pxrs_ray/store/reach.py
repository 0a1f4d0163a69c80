"""Whether anybody listens where a store should be: noticed in seconds, before a call's deadline."""

from __future__ import annotations

import socket
import time

from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.store.url import PORTS, StoreUrl

WAIT_S = 2.0


def check_reach(url: StoreUrl, wait_s: float = WAIT_S) -> None:
    """Raise StoreUnavailable where none of the URL's hosts listens; what has no server passes."""
    if url.scheme not in PORTS or (url.path.startswith("/") and not url.hosts):
        return
    end_s, wrong = time.monotonic() + wait_s, ""
    for host, port in url.hosts or (("localhost", None),):
        try:
            place = (host or "localhost", port or PORTS[url.scheme])
            socket.create_connection(place, max(0.1, end_s - time.monotonic())).close()
        except (OSError, OverflowError) as error:
            wrong = f"{place[0]}:{place[1]}: {error}"
        else:
            return
    raise StoreUnavailable(
        f"nobody listens at {url.shown} ({wrong}): is the server running, and is that its address?"
    )
