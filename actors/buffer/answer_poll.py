"""`AnswerPoll`: the wait of one thread for answers on sockets, and for wake-ups by other threads.

Rules of this file. The waiting thread only learns that an answer has arrived; whoever wants the
answer receives it. A thread that is busy between its calls can therefore `take` answers itself,
without waiting until another thread gets its turn. While it does, the waiting thread is not woken
for each answer: it would find the answer taken, and its turns would cost the busy thread more than
the answers do. While there is no socket, a queue wakes the thread.
"""

from __future__ import annotations

import os
import queue as queues
import select
import threading
from collections.abc import Collection
from typing import Protocol

# What may have come on a line before its end, in pieces of what is received at once.
ENDS_AFTER = 16
# After so many answers in a row that others took, the thread that waits leaves the next ones to
# them. It looks every `REST_S` whether one lies there that nobody takes.
OTHERS_TAKE = 8
REST_S = 0.002


class AnswerSource(Protocol):
    """What has answers to give."""

    @property
    def awaits(self) -> bool:
        """Whether an answer is to come."""

    def fileno(self) -> int:
        """Its socket."""

    def receive(self) -> bool:
        """Take in what has come, and give what waits to go; waits for nothing. Whether something
        had come."""


class AnswerPoll:
    """See the rules at the head of this file. One thread waits; any thread wakes it, and `take`s
    where it holds the lock that all who `take` share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakes: queues.SimpleQueue[None] = queues.SimpleQueue()
        self._epoll: select.epoll | None = None
        # Hears of wakes alone.
        self._rests: select.epoll | None = None
        self._others_took = 0
        self._event = -1
        self._lines: dict[int, AnswerSource] = {}

    def add(self, line: AnswerSource) -> None:
        """Wait for what comes on `line` too, until it is removed."""
        with self._lock:
            if self._epoll is None:
                self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                self._epoll = select.epoll()
                self._epoll.register(self._event, select.EPOLLIN)
                self._rests = select.epoll()
                self._rests.register(self._event, select.EPOLLIN)
                self._wakes.put(None)
            self._lines[line.fileno()] = line
            self._epoll.register(line.fileno(), select.EPOLLIN)

    def remove(self, line: AnswerSource) -> None:
        """Call it before the socket is closed."""
        with self._lock:
            if self._epoll is not None and self._lines.pop(line.fileno(), None) is not None:
                self._epoll.unregister(line.fileno())

    def ask_for_room(self, line: AnswerSource, *, asked: bool) -> None:
        """Whether to return from a wait also when the socket takes more."""
        with self._lock:
            if self._epoll is not None and line.fileno() in self._lines:
                events = select.EPOLLIN | (select.EPOLLOUT if asked else 0)
                self._epoll.modify(line.fileno(), events)

    def wake(self) -> None:
        """End the wait of now, or the next one."""
        with self._lock:
            if self._epoll is None:
                self._wakes.put(None)
            else:
                os.eventfd_write(self._event, 1)

    def wait(self, timeout_s: float) -> list[AnswerSource]:
        """Return at a wake, at an answer, or after `timeout_s`: the lines that have something."""
        if self._epoll is None:
            try:
                self._wakes.get(timeout=timeout_s)
            except queues.Empty:
                pass
            return []
        if self._others_took >= OTHERS_TAKE and self._awaits():
            assert self._rests is not None, "there are both or none"
            self._rests.poll(min(timeout_s, REST_S))
            timeout_s = 0.0
        ready = self._epoll.poll(timeout_s)
        if any(at == self._event for at, _ in ready):
            os.eventfd_read(self._event)
        return [self._lines[at] for at, _ in ready if at in self._lines]

    def _awaits(self) -> bool:
        return any(line.awaits for line in list(self._lines.values()))

    def take(self, ready: Collection[AnswerSource] | None = None) -> None:
        """Take in what has come on every line that awaits an answer, and on those `ready`, which
        the thread that waits here gives, and nobody else."""
        came = False
        for line in list(self._lines.values()):
            if line.awaits or (ready is not None and line in ready):
                came |= line.receive()
        if came:
            self._others_took = self._others_took + 1 if ready is None else 0

    def close(self) -> None:
        """Once nobody waits any more, and every line was told to end."""
        for _ in range(ENDS_AFTER):
            self.take(list(self._lines.values()))
        with self._lock:
            epoll, self._epoll = self._epoll, None
            self._lines.clear()
            if epoll is not None and self._rests is not None:
                self._rests.close()
                epoll.close()
                os.close(self._event)
