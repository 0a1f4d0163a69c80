"""`answers_here`: where all callers of this process that block have their answers taken.

Rules of this file. One thread serves them all, begun with the first connection. A child that was
forked has a poll and a thread of its own: those of its parent are not there.
"""

from __future__ import annotations

import os
import threading

from pxrs_ray.actors.buffer.answer_poll import AnswerPoll, AnswerSource
from pxrs_ray.supervision.supervisor import Supervisor

WAIT_S = 10.0

_lock = threading.Lock()
_polls: dict[int, SharedAnswers] = {}


class SharedAnswers(AnswerPoll):
    """See the rules at the head of this file."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = False
        self._supervisor = Supervisor("links")

    def add(self, line: AnswerSource) -> None:
        """See `AnswerPoll.add`; the first line begins the thread."""
        super().add(line)
        with _lock:
            if not self._begun:
                self._begun = True
                self._supervisor.thread("pxrs-links", self._run, again=lambda: True).start()

    def _run(self) -> None:
        while True:
            self.take(self.wait(WAIT_S))


def answers_here() -> AnswerPoll:
    """The poll of this process."""
    with _lock:
        pid = os.getpid()
        if pid not in _polls:
            _polls.clear()
            _polls[pid] = SharedAnswers()
        return _polls[pid]
