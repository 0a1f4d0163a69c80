"""The local sockets between a buffer and the processes of its own node and user.

Rules of this file. A socket has no file, so it ends with its process. Processes of another user or
container cannot reach it; they call over the network or through Ray.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import uuid

BACKLOG = 128
CONNECT_S = 1
# What may lie in a socket that carries much: the fewer turns, the less each byte costs. The system
# gives less where it is set to (`net.core.wmem_max`).
MUCH_BYTES = 1 << 20
_PEER = struct.Struct("3i")  # process, user, group


def is_ours(found: socket.socket) -> bool:
    """Whether the other end is of our user, and not in another container (there it has no id)."""
    credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    process, user, _ = _PEER.unpack(credentials)
    return bool(process and user == os.geteuid())


def widen(found: socket.socket) -> None:
    """Let much lie in this socket, for it carries much."""
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MUCH_BYTES)


def listening_here() -> tuple[socket.socket, str]:
    """A socket that listens on this node, and its name."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = f"\0pxrs-{uuid.uuid4().hex}"
    made.bind(name)
    made.setblocking(False)
    return made, name


def connect(name: str) -> socket.socket | None:
    """A connection to who listens under that name; None when it is not of this node."""
    if sys.platform != "linux" or not name.startswith("\0"):
        return None
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.settimeout(CONNECT_S)
        found.connect(name)
        if is_ours(found):
            return found
    except OSError:
        pass
    found.close()
    return None
