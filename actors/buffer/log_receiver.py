"""`LogReceiver`: the short-lived actor on the node that a buffer's logs are copied to.

Rules of this file. It fetches from the buffer itself, so no byte passes through the coordinator. It
ends with the coordinator that made it; the next receiver throws away what had arrived. Its methods
block: it does one thing at a time.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors.buffer.buffer_client import BufferClient, BufferReply
from pxrs_ray.errors import LogAway
from pxrs_ray.files import Files
from pxrs_ray.log.disk_id import make_disk_id
from pxrs_ray.log.log_copy import Arriving, Bytes, FileState, Piece, remove_slot

CALL_WAIT_S = 30.0
# Enough to keep disk and wire at work, and little to hold in memory: 16 MiB.
PIECES_UNDER_WAY = 4


class LogReceiver:
    """The copy of a slot's logs on this node's disk; `folder` is the topology's."""

    def __init__(self, folder: str, index: int) -> None:
        self._files = Files()
        self._folder = Path(folder)
        self._disk_id = make_disk_id(self._files, self._folder.parent)
        self._arriving = Arriving(self._files, self._folder, index)

    def disk_id(self) -> str:
        """The disk that the copy arrives on."""
        return self._disk_id

    def round(self, source: Any, last: bool) -> int:
        """Fetch what has come since the last round; answers how many bytes.

        Raises LogAway when the `last` one, of a buffer that has stopped, does not make a whole
        copy; and what `call_failure.ours` makes of the rest.
        """
        buffer = BufferClient(source)
        listing = buffer.slot_files().result(CALL_WAIT_S)
        under_way: deque[tuple[Piece, BufferReply[Bytes]]] = deque()
        taken = 0
        for piece in self._arriving.missing(listing, last=last):
            under_way.append((piece, buffer.read_piece(piece)))
            if len(under_way) >= PIECES_UNDER_WAY:
                taken += self._take(*under_way.popleft())
        while under_way:
            taken += self._take(*under_way.popleft())
        if last and (lacking := self._arriving.lacks(listing)):
            raise LogAway(f"{lacking[0]} changed while it was copied: it is still written")
        return taken

    def _take(self, piece: Piece, coming: BufferReply[Bytes]) -> int:
        found = coming.result(CALL_WAIT_S)
        self._arriving.take(piece, found)
        return len(found.data)

    def install(self) -> None:
        """Make the copy the slot's logs on this disk."""
        self._arriving.install()

    def give_up(self) -> None:
        """Leave nothing of it."""
        self._arriving.give_up()


def make_arrival(node: str, folder: str, index: int) -> Any:
    """The actor, on that node. Asks the GCS."""
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    made = ray.remote(LogReceiver).options(num_cpus=0, scheduling_strategy=where, max_restarts=0)
    return made.remote(folder, index)


def forget_on(node: str, folder: str, index: int, buffers: int, left: list[FileState]) -> Any:
    """Begin to remove what a slot `left` on the disk of a node that it is at home on no more."""
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(_forget).options(num_cpus=0, max_retries=0, scheduling_strategy=where)
    return task.remote(folder, index, buffers, left)


def _forget(folder: str, index: int, buffers: int, left: list[FileState]) -> None:
    remove_slot(Files(), Path(folder), index, buffers, left)
