"""`PulseLine` and `Watchdog`: the processes of one node watch one another.

Rules of this file. Ray replaces a process that has ended and never one that is frozen: to Ray it
lives. So the coordinator and each buffer answer pulse checks on a local socket, from a thread that
does nothing else, and each of them checks the others of its node once a second. A process that is
frozen, as `ProcessWatch` judges it, is killed, and Ray starts it anew. The store's
generation and the logs' files fence whatever a frozen process had begun.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import ray

from pxrs_ray.actors.cluster.process_file import (
    ProcessFile,
    end_process,
    is_stopped,
    processes_of,
    write_process_file,
)
from pxrs_ray.supervision.freeze_detector import ProcessLook
from pxrs_ray.supervision.process_watch import Mute, ProcessWatch
from pxrs_ray.supervision.restart_rules import RestartRules
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

LOOK_PAUSE_S = 1.0
ANSWER_WAIT_S = 0.5
BACKLOG = 64
_PEER = struct.Struct("3i")  # process, user, group
# The answer: for how long the event loop has not run, in seconds; below 0 where there is none.
_ANSWER = struct.Struct("<d")


class PulseLine:
    """Answers pulse checks for this process until it ends."""

    def __init__(self) -> None:
        self.name = ""
        self._closed = False
        self._beaten_s: float | None = None
        if sys.platform != "linux":
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.name = f"pxrs-pulse-{uuid.uuid4().hex}"
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(BACKLOG)
        rules = RestartRules(pause_first_s=ANSWER_WAIT_S, pause_most_s=ANSWER_WAIT_S)
        answering = Supervisor("its pulse", rules).thread(
            "pxrs-pulse", self._answer_for_ever, again=lambda: not self._closed
        )
        answering.start()

    def beat(self) -> None:
        """The event loop runs."""
        self._beaten_s = time.monotonic()

    def _answer_for_ever(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                if self._closed:
                    return
                raise  # no descriptors, say: told, and tried again; until then we are mute
            with caller:
                beaten_s = self._beaten_s
                silent_s = -1.0 if beaten_s is None else time.monotonic() - beaten_s
                try:
                    caller.settimeout(ANSWER_WAIT_S)
                    caller.sendall(_ANSWER.pack(silent_s))
                except OSError:
                    continue  # it does not wait any more

    def close(self) -> None:
        """Answer no more."""
        self._closed = True
        if self.name:
            # Closing alone leaves the thread where it waits, and the socket open with it.
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()


def look_at(process: ProcessFile) -> ProcessLook:
    """Ask a process of this node for its pulse."""
    stopped = is_stopped(process.pid)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(ANSWER_WAIT_S)
        try:
            asking.connect(f"\0{process.pulse}")
            peer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            answer = asking.recv(_ANSWER.size)
        except OSError:
            return ProcessLook(answered=False, stopped=stopped)
    pid, user, _ = _PEER.unpack(peer)
    if (pid, user) != (process.pid, os.geteuid()) or len(answer) != _ANSWER.size:
        return ProcessLook(answered=False, stopped=stopped)
    (silent_s,) = _ANSWER.unpack(answer)
    return ProcessLook(answered=True, loop_silent_s=None if silent_s < 0 else silent_s)


class Watchdog:
    """Checks the processes whose files are in `folder`, on a thread of its own."""

    def __init__(
        self,
        folder: Path,
        look: Callable[[ProcessFile], ProcessLook] = look_at,
        end: Callable[[ProcessFile], bool] = end_process,
        every_s: float = LOOK_PAUSE_S,
    ) -> None:
        self._folder = folder
        self._look = look
        self._end = end
        self._every_s = every_s
        self._judged: ProcessWatch[ProcessFile] = ProcessWatch(every_s, ANSWER_WAIT_S)
        self._mute: tuple[Mute, ...] = ()
        self._closed = threading.Event()

    def start(self) -> None:
        """Look once a second from now on, where the system lets us."""
        if sys.platform == "linux":
            watching = Supervisor("the watchdog").thread(
                "pxrs-watchdog", self._watch, again=lambda: not self._closed.is_set()
            )
            watching.start()

    def mute(self) -> tuple[Mute, ...]:
        """Who did not answer at the last look."""
        return self._mute

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self.look_round()
            except Exception:
                logger.exception("the watchdog of %s looks again", self._folder)

    def look_round(self) -> None:
        """Look at every process once, and end those that are frozen."""
        for process in self._judged.begin(list(processes_of(self._folder))):
            seen = self._look(process)
            frozen = self._judged.looked(process, seen, time.monotonic())
            if frozen and self._end(process):
                logger.error(
                    "%s (pid %d) is frozen (%s): it is ended, and Ray starts it anew",
                    process.role,
                    process.pid,
                    "stopped" if seen.stopped else "it does not answer",
                )
        self._mute = self._judged.mute()


class Watched:
    """A process that answers pulse checks, and checks the others of its node."""

    def __init__(self, folder: Path, role: str, lease_s: float) -> None:
        self._beating: asyncio.Future[None] | None = None
        self.pulse = PulseLine()
        write_process_file(folder, role, self.pulse.name, lease_s)
        self.watchdog = Watchdog(folder)
        self.watchdog.start()

    def begin(self) -> None:
        """Show from now on that the running event loop runs; begun twice is begun."""
        if self._beating is None:
            self._beating = Supervisor("its pulse").keep("beat", self._beat_for_ever)

    async def _beat_for_ever(self) -> None:
        while True:
            self.pulse.beat()
            await asyncio.sleep(LOOK_PAUSE_S)

    def close(self) -> None:
        """Look after nobody any more, and answer nobody."""
        if self._beating is not None:
            self._beating.cancel()
        self.watchdog.close()
        self.pulse.close()


class Unwatched(Watched):
    """A process that is no actor, as in tests: nothing would start it anew."""

    def __init__(self) -> None:
        """Do nothing."""

    def begin(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def watched(folder: Path, role: str, lease_s: float) -> Watched:
    """This process under the eyes of its node, where it is an actor."""
    return Watched(folder, role, lease_s) if ray.is_initialized() else Unwatched()
