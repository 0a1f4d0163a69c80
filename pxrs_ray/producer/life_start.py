"""`LifeStart`: how a producer that comes back under its name begins a new life. Pure.

Rules of this file. Every buffer that holds a partition of the queue must know the new life before
it sends anything; from then on whatever a former life still has under way is refused. All that do
not know it yet are asked at once, in rounds, until the time is over. When a buffer knows a newer
life (its clock ran ahead, or two begin at once), all are asked again with a higher number: the
last one to begin wins. A number alone tells no two lives apart, for clocks agree: the token does.
"""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.data.message_form import checked_name
from pxrs_ray.errors import DeadlineExceeded, PxrsError, UsageError
from pxrs_ray.log.producer_fence import ProducerLife, named_producer_id

BEGIN_WAIT_S = 60.0
# For how long one round of asking waits for answers.
CALL_WAIT_S = 10.0
PAUSE_S = 0.1
NAME_CHARS_MAX = 200


def check_producer_name(producer: str) -> None:
    """Raise UsageError for a name that cannot be one."""
    if not producer or len(checked_name(producer, "a producer_id")) > NAME_CHARS_MAX:
        raise UsageError(f"a producer_id has 1 to {NAME_CHARS_MAX} characters")


class LifeStart:
    """One beginning. Ask the buffers in `left` for `number` and `token`, and tell what they said
    with `answered`, until it is `begun`."""

    def __init__(self, producer: str, buffers: int, number: int, token: str, now_s: float) -> None:
        self.token = token
        # The time is a number that is higher than before, mostly; that it is, the buffers judge.
        self.number = number
        self.left = frozenset(range(buffers))
        self._producer = producer
        self._buffers = buffers
        self._end_s = now_s + BEGIN_WAIT_S
        self._troubles: dict[int, PxrsError] = {}

    @property
    def begun(self) -> bool:
        """Whether every buffer knows this life."""
        return not self.left

    @property
    def identity(self) -> bytes:
        """Who appends in this life, once it is begun."""
        return named_producer_id(self._producer, self.number)

    def check_time(self, queue: str, now_s: float) -> None:
        """Raise DeadlineExceeded when the time to begin is over, naming who does not know of it."""
        if now_s <= self._end_s:
            return
        told = "; ".join(
            f"buffer {i}: {self._troubles.get(i, 'a newer life')}" for i in sorted(self.left)
        )
        raise DeadlineExceeded(
            f"producer {self._producer!r} of {queue!r} could not begin in {BEGIN_WAIT_S:g} s, for "
            f"not every buffer knows of it: {told}"
        )

    def answered(
        self, answers: Mapping[int, ProducerLife | PxrsError | None], dice: float
    ) -> float | None:
        """What each buffer said in this round; answers the pause before the next one, None when
        there is none. `dice` is from 0 to 1: two that begin at once must not keep in step."""
        newest, known = 0, set()
        for index, answer in answers.items():
            if isinstance(answer, PxrsError):
                self._troubles[index] = answer
            elif answer is not None and self._is_ours(answer):
                known.add(index)
            elif answer is not None:
                newest = max(newest, answer.number)
        self.left -= known
        if newest:
            self.number, self.left = newest + 1, frozenset(range(self._buffers))
            return dice * PAUSE_S
        return PAUSE_S if self.left else None

    def _is_ours(self, told: ProducerLife) -> bool:
        return told.token == self.token and told.number == self.number
