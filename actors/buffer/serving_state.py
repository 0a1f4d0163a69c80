"""`ServingState`: a buffer's disk, what is open on it, and which coordinator lets it serve.

Rules of this file. `BufferLife` says whether the disk is the right one, and when a life is over.
Nothing is opened before. Each ping looks for a disk that comes later; until it does, every call
that needs the logs raises LeaseOver.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from pathlib import Path

import ray

from pxrs_ray.actors.buffer.lease_gate import BufferLeaseGate
from pxrs_ray.actors.buffer.log_reader import LogReader
from pxrs_ray.actors.buffer.log_writer import LogWriter, in_threads
from pxrs_ray.actors.buffer.maintenance import Maintenance, patiently
from pxrs_ray.clock import lease_clock_ms, wall_ms
from pxrs_ray.data.protocol import BufferGrant, BufferInfo
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.buffer_life import BufferLife, Woken
from pxrs_ray.log.disk_id import make_disk_id, read_disk_id
from pxrs_ray.log.held_calls import Waiting, wake
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.supervision.supervisor import problems_here


@dataclass(frozen=True, slots=True)
class Parts:
    """What a buffer has opened on its disk."""

    manager: LogManager
    fence: ReadFence
    reader: LogReader
    tending: Maintenance


class ServingState:
    """The disk part of `Buffer`. See the rules at the head of this file."""

    # Whether what is done to one log has nothing to do with any other.
    logs_apart = True

    def __init__(
        self, topology: str, index: int, buffers: int, folder: Path, files: Files, disk_id: str
    ) -> None:
        self._topology, self._index, self._buffers = topology, index, buffers
        self._folder, self._files = folder, files
        self.life = BufferLife(index, folder.parent, disk_id)
        self._begin()

    def _begin(self) -> None:
        """Begin a life: the first one, or another after `closed`."""
        self.life.begins()
        self._incarnation = uuid.uuid4().hex
        self._counts: Counter[str] = Counter()
        self._waiting: Waiting = {}
        self._writer = LogWriter(
            lambda log: wake(self._waiting, (log.queue, log.partition)), apart=self.logs_apart
        )
        what = f"buffer {self._index} of {self._topology}"
        self._gate = self._new_gate(what)
        self._parts: Parts | None = None
        self._look_for_disk()

    def _new_gate(self, what: str) -> BufferLeaseGate:
        return BufferLeaseGate(what, self._incarnation, self._waiting)

    def _look_for_disk(self) -> None:
        """Open what lies on our disk, if it is here."""
        above = self._folder.parent
        find = read_disk_id if self.life.disk_id else make_disk_id
        if self.life.sees_disk(patiently(lambda: find(self._files, above))):
            self._parts = self._opened()
            self.life.opened()

    def _opened(self) -> Parts:
        manager = patiently(self._new_manager)
        try:
            fence = patiently(lambda: ReadFence(manager.folder / "fence.jsonl", self._files))
        except BaseException:
            manager.abandon()  # nobody could let go of the locks later
            raise
        fence.tell_changed = manager.changed.note
        manager.taken_over = fence.another_wrote
        reader = LogReader(manager, fence, self._counts)
        return Parts(
            manager, fence, reader, Maintenance(manager, fence, self._writer, self._waiting)
        )

    def _new_manager(self) -> LogManager:
        args = (self._folder, self._index, self._buffers)
        return LogManager(*args, wall_ms(), files=self._files, each=in_threads)

    def _found(self) -> Parts:
        self.life.check_open()
        assert self._parts is not None
        return self._parts

    @property
    def _manager(self) -> LogManager:
        return self._found().manager

    @property
    def _fence(self) -> ReadFence:
        return self._found().fence

    @property
    def _reader(self) -> LogReader:
        return self._found().reader

    @property
    def _tending(self) -> Maintenance:
        return self._found().tending

    async def ping(self, grant: BufferGrant | None = None) -> BufferInfo:
        """Take what is granted, and say who this is.

        Another `incarnation` than before means: restarted, call `open`. A higher `generation` than
        the caller's: a newer coordinator leads, and its grant was not taken. A coordinator, and
        nobody else, wakes one that is closed. Raises LeaseOver to others then.
        """
        match self.life.asked(by_coordinator=grant is not None):
            case Woken.BEGIN_ANEW:
                self._begin()
            case Woken.END_PROCESS:
                os._exit(1)
        if self._parts is None:
            self._look_for_disk()
        if self._parts is not None:
            self._tending.begin()
            if grant is not None:
                self._gate.grant(grant)
        in_ray = ray.is_initialized()
        heard, since = grant.ends_heard if grant is not None else ("", 0)
        since = since if heard == self._incarnation else 0
        # Before the ends are read: what changes meanwhile is told once more.
        ends_to = self._parts.manager.changed.newest if self._parts else 0
        return BufferInfo(
            self._topology,
            self._index,
            self._incarnation,
            os.getpid(),
            ray.get_runtime_context().get_node_id() if in_ray else "",
            self._parts.manager.queues if self._parts else (),
            disk_id=self.life.here,
            host=node_address(),
            generation=self._gate.tenure.generation,
            term=self._gate.tenure.term,
            monotonic_ms=lease_clock_ms(),
            ends=self._parts.manager.known_ends(since) if self._parts else {},
            problem=self.life.problem,
            problems=problems_here(),
            ends_to=ends_to,
        )


def node_address() -> str:
    """This node's; known here, nobody is asked. '' without Ray."""
    if not ray.is_initialized():
        return ""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
