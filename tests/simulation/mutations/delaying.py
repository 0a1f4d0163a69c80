"""Guards of delayed messages: each is moved once, and in its time."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_TESTS = ("tests/simulation/test_delays.py",)


def _moves(guard: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change("processing/delay_moves.py", text, instead),), tests=_TESTS)


DELAYING = (
    _moves(
        "who is new to a log hears from it how far a tier was moved there",
        "follows = None if way.sequence else way.follows",
        "follows = None",
    ),
    _moves(
        "what a former owner moved is not moved again",
        "        if message.offset > way.moved_to:\n            way.waiting",
        "        if True:\n            way.waiting",
    ),
    _moves(
        "what is refused because a former owner moved it waits no more",
        "        way.waiting = [each for each in way.waiting if each.source > way.moved_to]",
        "        way.waiting = list(way.waiting)",
    ),
    _moves(
        "an append of moved messages whose answer was lost is made again as it was",
        "            if way.frame is None and way.waiting:\n",
        "            if way.waiting:\n",
    ),
    _moves(
        "a call that comes again takes nothing that was taken",
        "if message.offset < self._next:",
        "if False:",
    ),
    _moves(
        "a delayed message waits until its time",
        "found.until_ms > now_ms and not self._is_ahead(found, now_ms)",
        "False",
    ),
    _moves(
        "a producer whose clock is ahead holds nobody up",
        "found.until_ms > now_ms and not self._is_ahead(found, now_ms)",
        "found.until_ms > now_ms",
    ),
)
