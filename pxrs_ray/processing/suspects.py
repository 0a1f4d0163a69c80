"""Finds which message killed a process, from the handler calls that were under way. Pure.

Rules of this file. A death counts as a failed attempt of a message only when that message was the
only one in hand: then it is certain. Otherwise every message in hand is *suspect*. A suspect has
trouble, which grows with each death at which it was in hand: by one when the process was killed
from outside, as far as anybody knows, by two when the process ended itself (a fault, an exit in the
handler). From trouble two on a suspect is delivered alone: nothing else begins in its process while
it is in hand, for a time that grows fourfold with each trouble. So innocent messages pass, one
after the other, and a message that kills its process, however late, is alone with it in the end.

All of this is kept in the detail of the partition's row, and so survives every process.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from pxrs_ray.codec import Codec, register
from pxrs_ray.errors import HandlerKilled, StoreCorrupted
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.processing.done_ranges import (
    VERSION,
    VERSION_WITH_LOG,
    VERSION_WITH_SUSPECTS,
    DoneRanges,
    NamedGaps,
    named_in,
    numbers,
    written,
)
from pxrs_ray.store.registry import DETAIL_CHARS_MAX

SUSPECTS_MAX = 128
REDRIVEN_MAX = 16
TROUBLE_MAX = 16
AGE_MAX_MS = 1 << 40

# What a process ended with: 0 is not known, below EXITED it is a signal, from there on it is an
# exit code; from EXITED_ITSELF on one that code in the process has asked for.
EXITED = 256
EXITED_ITSELF = 512
_FAULTS = frozenset((signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT))

ISOLATED_FROM = 2
ALONE_MS = 200
ALONE_MS_MAX = 300_000
PAUSE_MS = 2_000
PAUSE_MS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One call of a handler that was under way: messages `first` to, not including, `end`.

    `redriven`: it was for the message at that position of the partition's quarantine.
    """

    partition: PartitionId
    epoch: Epoch
    first: Offset
    end: Offset
    age_ms: int = 0
    redriven: bool = False


@dataclass(frozen=True, slots=True)
class Death:
    """What is known of a process that died: the calls that were under way, and how it ended."""

    calls: tuple[HandlerCall, ...] = ()
    cause: int = 0

    @property
    def by_itself(self) -> bool:
        """Whether something in the process ended it, and nobody from outside."""
        return self.cause in _FAULTS or self.cause >= EXITED_ITSELF

    def __str__(self) -> str:
        places = ", ".join(
            f"P{call.partition} offset {call.first}"
            + (f" to {call.end - 1}" if call.end - call.first > 1 else "")
            for call in islice(self.calls, 5)
        )
        more = f" and {len(self.calls) - 5} more" if len(self.calls) > 5 else ""
        return f"{cause_text(self.cause)}, in hand: {places or 'nothing'}{more}"


def cause_text(cause: int) -> str:
    """How a process ended, as people say it."""
    if cause >= EXITED:
        return f"exit code {cause % EXITED}"
    try:
        return signal.Signals(cause).name
    except ValueError:
        return "its end is not known"


@dataclass(frozen=True, slots=True)
class Suspect:
    """Messages that were in hand at a death. `alone` counts the deaths at which nothing else was.

    `age_ms` is for how long the call had been under way, and `cause` how the process ended, the
    last time.
    """

    first: Offset
    end: Offset
    trouble: int
    alone: int = 0
    age_ms: int = 0
    cause: int = 0

    @property
    def isolated(self) -> bool:
        """Whether it is delivered alone."""
        return self.trouble >= ISOLATED_FROM

    @property
    def apart(self) -> bool:
        """Whether it is delivered alone, and not in a batch."""
        return self.isolated or self.alone > 0

    @property
    def alone_ms(self) -> int:
        """For how long nothing else begins beside it, and for how long it waits for the others."""
        if not self.isolated:
            return 0
        return int(min(ALONE_MS << 2 * (self.trouble - ISOLATED_FROM), ALONE_MS_MAX))

    @property
    def pause_ms(self) -> int:
        """How long its next owner leaves it, so that what died can be there again."""
        if not self.isolated:
            return 0
        return int(min(PAUSE_MS << (self.trouble - ISOLATED_FROM), PAUSE_MS_MAX))

    def is_doomed(self, attempts: int, attempts_max: int) -> bool:
        """Whether it has killed so often that it must not be delivered again."""
        return self.alone > 0 and 0 < attempts_max <= attempts

    def told(self) -> str:
        """The error of a message that is doomed."""
        times = "once" if self.alone == 1 else f"{self.alone} times"
        died = f"its process died {times} in the call of this message"
        return repr(HandlerKilled(f"{died}, the last time of {cause_text(self.cause)}"))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """All suspects of one partition, and positions of its quarantine whose re-driving killed."""

    suspects: tuple[Suspect, ...] = ()
    redriven: tuple[Offset, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.suspects or self.redriven)

    @property
    def end(self) -> Offset:
        """Behind the last suspect."""
        return max((suspect.end for suspect in self.suspects), default=0)

    def of(self, offset: Offset) -> Suspect | None:
        """What the message at `offset` is suspected of: the worst of it."""
        found = [s for s in self.suspects if s.first <= offset < s.end]
        return max(found, key=lambda s: (s.alone, s.trouble), default=None)

    def without(self, offset: Offset) -> Suspicion:
        """The message's call has ended, however it did: nothing speaks against it any more."""
        if not any(s.first <= offset < s.end for s in self.suspects):
            return self
        kept: list[Suspect] = []
        for s in self.suspects:
            if not s.first <= offset < s.end:
                kept.append(s)
                continue
            kept += [replace(s, end=offset)] if s.first < offset else []
            kept += [replace(s, first=offset + 1)] if offset + 1 < s.end else []
        return replace(self, suspects=tuple(kept))

    def above(self, low: Offset) -> Suspicion:
        """What is left when everything below `low` is done."""
        if all(s.first >= low for s in self.suspects):
            return self
        kept = (replace(s, first=max(s.first, low)) for s in self.suspects if s.end > low)
        return replace(self, suspects=tuple(kept))

    def encode(self, low: Offset) -> str:
        """As digits: see `DoneRanges` for those."""
        parts, at = [], low
        for s in sorted(self.above(low).suspects, key=lambda s: (s.first, s.end)):
            fields = (s.first - at, s.end - s.first, s.trouble, s.alone, s.age_ms // 100, s.cause)
            parts += [written(number) for number in fields]
            at = s.first
        return "".join(parts) + ";" + "".join(written(position) for position in self.redriven)

    @classmethod
    def decode(cls, low: Offset, text: str) -> Suspicion:
        """Read what `encode` wrote. Raises StoreCorrupted."""
        told, _, redriven = text.partition(";")
        found = list(numbers(told))
        if len(found) % 6:
            raise StoreCorrupted("a detail ends in the middle of a suspect")
        suspects, at = [], low
        for index in range(0, len(found), 6):
            distance, length, trouble, alone, age, cause = found[index : index + 6]
            at += distance
            suspects.append(Suspect(at, at + length, trouble, alone, age * 100, cause))
        return cls(tuple(suspects), tuple(numbers(redriven)))


NOBODY = Suspicion()


def _from_bytes(data: bytes) -> Suspicion:
    try:
        return Suspicion.decode(0, data.decode())
    except StoreCorrupted as error:
        raise ValueError(str(error)) from error


SUSPICION: Codec[Suspicion] = register(
    Codec(
        "registry: suspects in a partition's row",
        Suspicion,
        lambda suspicion: suspicion.encode(0).encode(),
        _from_bytes,
    )
)


def encode_detail(
    gaps: DoneRanges,
    failing: Mapping[Offset, int],
    suspicion: Suspicion,
    named: NamedGaps | None = None,
) -> str:
    """What a row's detail says. What does not fit of the suspicion is left out, oldest first."""
    plain = gaps.encode(failing)
    done, _, failed = plain.removeprefix(VERSION).partition(";")
    version, log = VERSION_WITH_SUSPECTS, ""
    if named is not None:
        version, log = VERSION_WITH_LOG, ";" + named.encode(gaps.low)
        plain = f"{version}{done};{failed};{NOBODY.encode(gaps.low)}{log}"
    while suspicion:
        told = f"{version}{done};{failed};{suspicion.encode(gaps.low)}{log}"
        if len(told) <= DETAIL_CHARS_MAX:
            return told
        if not suspicion.suspects:
            break
        # Who has been in work for longest before a death is the least likely to be its cause.
        worst_last = sorted(suspicion.suspects, key=lambda s: (s.alone, s.trouble, -s.age_ms))
        suspicion = replace(suspicion, suspects=tuple(worst_last[1:]))
    return plain


def decode_detail(low: Offset, text: str) -> tuple[DoneRanges, dict[Offset, int], Suspicion]:
    """Read what `encode_detail` wrote for the checkpoint `low`; which records it names, `named_in`
    says. Raises StoreCorrupted."""
    gaps, failing = DoneRanges.decode(low, text)
    if not text.startswith((VERSION_WITH_SUSPECTS, VERSION_WITH_LOG)):
        return gaps, failing, NOBODY
    suspects = ";".join(text.split(";")[2:4])
    return gaps, failing, Suspicion.decode(low, suspects)


def blame(
    checkpoint: Offset, attempts: int, detail: str, death: Death, calls: Iterable[HandlerCall]
) -> str:
    """The detail of a row after a death that its owner did not survive.

    `calls` are those of `death` that this row is answerable for. Offsets that are done are
    innocent. Only a message that was alone in hand has failed once more.
    """
    try:
        gaps, failing, suspicion = decode_detail(checkpoint, detail)
        named = named_in(checkpoint, detail)
    except StoreCorrupted:
        return detail  # it is not ours: whoever wrote it may read it
    step = ISOLATED_FROM if death.by_itself else 1
    redriven = list(suspicion.redriven)
    suspects = {(s.first, s.end): s for s in suspicion.above(checkpoint).suspects}
    for call in calls:
        if call.redriven:
            redriven += [call.first] if call.first not in redriven else []
            continue
        first, end = max(call.first, checkpoint), call.end
        if end <= first or (end - first == 1 and first in gaps):
            continue
        alone = len(death.calls) == 1 and end - first == 1
        known = suspicion.of(first)
        suspects[first, end] = Suspect(
            first,
            end,
            min(step + (known.trouble if known is not None else 0), TROUBLE_MAX),
            alone + (known.alone if known is not None else 0),
            min(call.age_ms, AGE_MAX_MS),
            death.cause,
        )
        if alone:
            before = failing.get(first, attempts if first == checkpoint else 0)
            failing[first] = before + 1
    kept = _worst(list(suspects.values()))
    found = Suspicion(tuple(kept), tuple(redriven[-REDRIVEN_MAX:]))
    told = encode_detail(gaps, failing, found, named)
    return told if len(told) <= DETAIL_CHARS_MAX else detail


def _worst(suspects: Sequence[Suspect]) -> list[Suspect]:
    ranked = sorted(suspects, key=lambda s: (-s.alone, -s.trouble, s.age_ms))
    return sorted(ranked[:SUSPECTS_MAX], key=lambda s: s.first)
