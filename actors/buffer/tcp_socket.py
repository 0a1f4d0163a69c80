"""The TCP sockets of links between nodes: where a buffer listens, and how a caller connects.

Rules of this file. A buffer listens on its node's Ray address and on no other. Nothing here waits.
A peer that is gone without a word is found within seconds: by what it does not acknowledge, or by
probes where nothing is under way.
"""

from __future__ import annotations

import random
import socket
import sys

from pxrs_ray.data.link_ports import LinkPorts

BACKLOG = 128
KEEP_IDLE_S = 3
KEEP_EVERY_S = 1
# Not acknowledged for so long, data or probes: the peer is gone.
GONE_MS = 5_000


def listening(address: str, ports: LinkPorts) -> socket.socket:
    """A socket that listens on one of these ports. Raises OSError when there is none."""
    refused: OSError | None = None
    for port in _in_any_order(ports):
        made = socket.socket(_family(address), socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
            made.listen(BACKLOG)
            made.setblocking(False)
            return made
        except OSError as error:
            made.close()
            refused = error
    raise OSError(f"no port of {ports} is free on {address}: {refused}")


def _in_any_order(ports: LinkPorts) -> list[int]:
    if not ports.last:
        return [0]
    every = list(range(ports.first, ports.last + 1))
    random.shuffle(every)
    return every


def told(address: str, port: int) -> str:
    """Address and port as one text."""
    return f"{address}:{port}"


def begin_to_connect(where: str) -> socket.socket | None:
    """A connection that is being made to what `told` says; None when it cannot even begin."""
    address, _, port = where.rpartition(":")
    if sys.platform != "linux" or not port.isdigit():
        return None
    found = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        found.setblocking(False)
        tune(found)
        found.connect((address, int(port)))
    except BlockingIOError:
        pass  # it is under way; who writes learns what becomes of it
    except OSError:
        found.close()
        return None
    return found


def tune(found: socket.socket) -> None:
    """Send at once, and learn soon when the peer is gone."""
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEP_IDLE_S),
        ("TCP_KEEPINTVL", KEEP_EVERY_S),
        ("TCP_USER_TIMEOUT", GONE_MS),
    ):
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
