"""Guards of what works messages in a consumer's room: the simulator runs these machines."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_PULLED = "consumer/pulled_positions.py"
_LIFE = "producer/life_start.py"
PULLED = ("pulling=1", "consumer_crash=8")
LIVES = ("producer_crash=30",)


def _one(
    guard: str, file: str, text: str, instead: str, seen_by: str, *settings: str, note: str = ""
) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), (seen_by,), settings, note)


WORKING = (
    _one(
        "what a pulling caller took is done when it says so, not before",
        _PULLED,
        "        return Progress(position.done)\n",
        "        return Progress(position.taken)\n",
        "CheckpointsCovered",
        *PULLED,
        "lanes=0",
    ),
    _one(
        "what is in a pulling caller's hands is not handed back",
        _PULLED,
        "if position.draining and (position.taken == position.done or self._closed)",
        "if position.draining",
        "DoneOnce",
        *PULLED,
        "lanes=0",
        "join=10",
    ),
    _one(
        "what came under another epoch is given to no pulling caller",
        _PULLED,
        "            position = self._of(partition, epoch)\n            if position is None or",
        "            position = self._positions.get(partition)\n            if position is None or",
        "InOrder",
        *PULLED,
        "lanes=0",
        "hang=10",
    ),
    _one(
        "a life of a producer begins above every life that the buffer knows",
        _LIFE,
        "self.number, self.left = newest + 1, frozenset(range(self._buffers))",
        "self.left = frozenset()",
        "NothingFails",
        *LIVES,
    ),
    _one(
        "two lives that begin with one number are told apart",
        _LIFE,
        "return told.token == self.token and told.number == self.number",
        "return told.number == self.number",
        "NothingFails",
        *LIVES,
    ),
)
