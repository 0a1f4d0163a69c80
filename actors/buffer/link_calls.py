"""`LinkCalls`: makes the calls that arrive over one connection, and sends their answers.

Rules of this file. A method answers at once, with a list or None; or later, with a held call or
with work to await. Whatever it raises is sent to its caller. Callers who waited for the change that
a call made are answered before the caller who made it: they are later in a message's path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pxrs_ray.actors.buffer.call_failure import ours
from pxrs_ray.actors.buffer.long_poll import HeldCall
from pxrs_ray.data.link_messages import failed_answer
from pxrs_ray.data.link_room import LinkRoom
from pxrs_ray.errors import LogAway
from pxrs_ray.supervision.supervisor import as_ordinary, beside

# What an answer is on the wire, in parts, to the call of that number.
SaidOf = Callable[[int, Any], Sequence[Any]]
AnswerWriter = Callable[[Sequence[Any]], None]


class LinkCalls:
    """See the rules at the head of this file. `say` writes, `ended` hears of each end of a call
    that was not answered at once."""

    def __init__(self, room: LinkRoom, say: AnswerWriter, ended: Callable[[], None]) -> None:
        self._room = room
        self._say, self._ended = say, ended
        self._behind: list[Any] = []

    def make(
        self,
        number: int,
        method: Callable[..., Any],
        arguments: Sequence[Any],
        said_of: SaidOf,
        size_bytes: int,
        *,
        changes: bool,
    ) -> None:
        """Make a call of this number, which holds so many bytes; `changes` says that others may
        wait for it."""
        try:
            found = method(*arguments)
        except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
            self._fail(number, error)
            return
        say = self._say_behind if changes else self._say
        if found is None or isinstance(found, list):
            self._tell(number, said_of, say, found)
            return
        self._room.calls += 1
        self._room.size_bytes += size_bytes
        answer = partial(self._answer, number, said_of, say, size_bytes)
        if isinstance(found, HeldCall):
            found.then(answer, answer)
        else:
            beside(lambda: found).add_done_callback(partial(_answer_of, answer))

    def _answer(
        self, number: int, said_of: SaidOf, say: AnswerWriter, size: int, found: Any
    ) -> None:
        """A call that took its time has ended, with what it found or an error."""
        self._room.calls -= 1
        self._room.size_bytes -= size
        if isinstance(found, BaseException):
            self._fail(number, found)
        else:
            self._tell(number, said_of, say, found)
        self._ended()

    def _tell(self, number: int, said_of: SaidOf, say: AnswerWriter, found: Any) -> None:
        try:
            say(said_of(number, found))
        except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
            self._fail(number, error)

    def _fail(self, number: int, error: BaseException) -> None:
        self._say([failed_answer(number, ours(as_ordinary(error)))])

    def _say_behind(self, said: Sequence[Any]) -> None:
        if not self._behind:
            asyncio.get_running_loop().call_soon(self._say_what_is_behind)
        self._behind += said

    def _say_what_is_behind(self) -> None:
        behind, self._behind = self._behind, []
        self._say(behind)


def _answer_of(answer: Callable[[Any], None], task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        answer(LogAway("the buffer ended meanwhile"))
    else:
        answer(task.exception() or task.result())
