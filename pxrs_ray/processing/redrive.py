"""`Redrive`: which quarantined messages are given to the handler again, and in which order. Pure.

Rules of this file. A key stays parked until nothing waits behind it: messages that come meanwhile
are parked behind the rest. Each step is noted in the quarantine's log before the next one is made,
so that another owner goes on behind it. A message that fails again, as often as any message may,
ends the re-driving of its key, and the key waits for an operator. What ended its process while it
was re-driven has failed so. What a former owner parked, and did not live to commit, is not parked
twice. What is known is the fold of the log (`Quarantine`); whoever runs this keeps that up to date.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from pxrs_ray.errors import HandlerKilled
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Offset
from pxrs_ray.processing.quarantine_state import Parked, Quarantine, QuarantineRecord
from pxrs_ray.processing.retry_rules import Deferred, RetryRules, TryAgain, after_failure
from pxrs_ray.processing.scheduler import Item

# How long it is waited until messages of a key that are under way are parked too.
PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class Note:
    """A record for the quarantine's log. Nothing goes on before it is there."""

    kind: QuarantineRecord
    key: bytes | None
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class GiveAgain:
    """Call the handler with this message; tell it with `worked` or `failed`.

    A call that ended because our time was over says nothing: the step is made again.
    """

    key: bytes | None
    entry: Parked
    attempt: int


@dataclass(frozen=True, slots=True)
class LetFlow:
    """Nothing waits behind this key: let it flow again, and tell with `freed` whether it does."""

    key: bytes | None


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Do nothing until then."""

    until_s: float


class Redrive:
    """See the rules at the head of this file."""

    def __init__(self, state: Quarantine, rules: RetryRules) -> None:
        self._state, self._rules = state, rules
        self._keys: deque[bytes | None] = deque()
        # How often the first message of the first key has failed in this round.
        self._failed = 0
        self._until_s = float("-inf")

    # --- what an owner inherits, and parks --------------------------------------------------------

    def sought(self, sought: tuple[Offset, Epoch] | None) -> Note | None:
        """What to note of a seek (to which offset, with which epoch) before anything else: what was
        parked before it comes again."""
        if sought is None or not self._state.comes_again(*sought):
            return None
        offset, epoch = sought
        return Note(QuarantineRecord.SOUGHT, None, {"offset": offset, "epoch": epoch})

    def killed(self, positions: Collection[Offset]) -> Iterator[Note]:
        """What to note of re-driving that ended its process: that is a failure."""
        for key, aside in list(self._state.keys.items()):
            entry = aside.first
            if entry is not None and aside.retrying and entry.position in positions:
                error = repr(HandlerKilled("its process died while the message was re-driven"))
                yield _failed(key, entry, entry.attempts + 1, error)

    def parked(self) -> set[bytes]:
        """The keys whose messages are parked."""
        return {key for key in self._state.keys if key is not None}

    def fresh(self, items: Sequence[Item]) -> list[Item]:
        """Those of one key's messages that are not parked yet."""
        aside = self._state.keys.get(items[0].key)
        last = aside.last_offset if aside is not None and items[0].key is not None else -1
        return [item for item in items if item.offset > last]

    # --- a round ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Re-drive everything that operators want re-driven by now."""
        self._keys = deque(key for key, aside in self._state.keys.items() if aside.retrying)
        self._failed = 0

    def next(self, now_s: float) -> GiveAgain | LetFlow | WaitUntil | None:
        """What to do now; None when the round is over."""
        while self._keys:
            if now_s < self._until_s:
                return WaitUntil(self._until_s)
            key = self._keys[0]
            aside = self._state.keys.get(key)
            if aside is None or not aside.retrying:
                self._next_key()
            elif aside.first is None:
                return LetFlow(key)
            else:
                return GiveAgain(key, aside.first, aside.first.attempts + self._failed + 1)
        return None

    def _next_key(self) -> None:
        self._keys.popleft()
        self._failed = 0

    def worked(self, step: GiveAgain) -> Note:
        """The message is done."""
        self._failed = 0
        return Note(QuarantineRecord.REDRIVEN, step.key, {"position": step.entry.position})

    def failed(self, step: GiveAgain, error: str, now_s: float) -> Note | None:
        """It failed: it is tried again, or its key waits for an operator."""
        if isinstance(error, Deferred):
            self._until_s = now_s + error.delay_ms / 1_000
            return None
        self._failed += 1
        verdict = after_failure(self._rules, self._failed)
        if isinstance(verdict, TryAgain):
            self._until_s = now_s + verdict.delay_ms / 1_000
            return None
        self._next_key()
        return _failed(step.key, step.entry, step.attempt, error)

    def freed(self, step: LetFlow, *, flows: bool, now_s: float) -> Note | None:
        """Whether the key flows; while messages of it wait, they are to be parked first."""
        if flows:
            self._next_key()
            return Note(QuarantineRecord.RELEASED, step.key, {})
        self._until_s = now_s + PAUSE_S
        return None


def _failed(key: bytes | None, entry: Parked, attempts: int, error: str) -> Note:
    return Note(
        QuarantineRecord.FAILED,
        key,
        {"position": entry.position, "attempts": attempts, "error": error},
    )
