"""A thread that takes answers of lines, as a producer's does."""

from __future__ import annotations

import threading
import weakref

from pxrs_ray.actors.buffer.answer_poll import AnswerPoll

WAIT_S = 0.1


def hearing() -> AnswerPoll:
    """A poll with a thread that takes what comes, until nobody holds the poll any more."""
    poll = AnswerPoll()
    threading.Thread(target=_hear, args=(weakref.ref(poll),), daemon=True).start()
    return poll


def _hear(found: weakref.ref[AnswerPoll]) -> None:
    while (poll := found()) is not None:
        poll.take(poll.wait(WAIT_S))
        del poll
