"""`DoneRanges`: the done offsets above the lowest one that is not done, and their text form.

Rules of this file. Done offsets are kept as runs; below `low` everything is done. The text is `1:`
and numbers in base-32 digits with a continuation bit, one character for a number below 32: lengths
that alternate between not done and done, from `low` on. Failed attempts follow after a `;`: pairs
of (distance from the former offset, attempts). Printable ASCII, no spaces. An empty map is written
as ''. What does not fit is in a log, and the text says where: see `pxrs_ray.processing.gap_map`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Offset
from pxrs_ray.store.registry import DETAIL_CHARS_MAX

VERSION = "1:"
# The same, and behind it what `pxrs_ray.processing.suspects` knows.
VERSION_WITH_SUSPECTS = "2:"
# The same, and behind it which records of the log beside the partition hold more.
VERSION_WITH_LOG = "3:"
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-"
_VALUE = {digit: value for value, digit in enumerate(DIGITS)}


def written(number: int) -> str:
    """A number of at least 0 as digits: five bits each, the highest bit says that more follow."""
    digits = []
    while number >= 32:
        digits.append(DIGITS[32 | number & 31])
        number >>= 5
    digits.append(DIGITS[number])
    return "".join(digits)


def numbers(text: str) -> Iterator[int]:
    """The numbers that `text` is made of. Raises StoreCorrupted when it is not."""
    number, shift = 0, 0
    for digit in text:
        value = _VALUE.get(digit)
        if value is None:
            raise StoreCorrupted(f"a gap map holds {digit!r}, which is no digit of it")
        number |= (value & 31) << shift
        shift += 5
        if value < 32:
            yield number
            number, shift = 0, 0
    if shift:
        raise StoreCorrupted("a gap map ends in the middle of a number")


@dataclass(frozen=True, slots=True)
class NamedGaps:
    """The records of a gap log that a row names: those of `epoch` from `base` to, not including,
    `end`. They say of nothing at `high` or above that it is done."""

    epoch: Epoch
    base: Offset
    end: Offset
    high: Offset

    def encode(self, low: Offset) -> str:
        """As digits, in a row with the checkpoint `low`."""
        fields = (self.epoch, self.base, self.end - self.base, max(0, self.high - low))
        return "".join(written(number) for number in fields)

    @classmethod
    def decode(cls, low: Offset, text: str) -> NamedGaps:
        """Read what `encode` wrote. Raises StoreCorrupted."""
        found = list(numbers(text))
        if len(found) != 4:
            raise StoreCorrupted(f"a row names its gap log by {len(found)} numbers: there are 4")
        epoch, base, count, above = found
        return cls(epoch, base, base + count, low + above)


class DoneRanges:
    """The offsets of one partition that are done."""

    def __init__(self, low: Offset) -> None:
        self._low = low
        self._starts: list[Offset] = []
        self._ends: list[Offset] = []

    @property
    def low(self) -> Offset:
        """The lowest offset that is not done."""
        return self._low

    @property
    def high(self) -> Offset:
        """The offset behind the highest one that is done, or `low`."""
        return self._ends[-1] if self._ends else self._low

    def __len__(self) -> int:
        return len(self._starts)

    def runs(self) -> Iterator[tuple[Offset, Offset]]:
        """What is done above `low`: first and end of each run."""
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, offset: Offset) -> bool:
        if offset < self._low:
            return True
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def add(self, first: Offset, end: Offset | None = None) -> None:
        """Offset `first` is done, or all up to, not including, `end`."""
        end = first + 1 if end is None else end
        first = max(first, self._low)
        if end <= first:
            return
        left = bisect_right(self._starts, first)
        if left and self._ends[left - 1] >= first:
            left -= 1
        right = bisect_right(self._starts, end)
        if left < right:
            first = min(first, self._starts[left])
            end = max(end, self._ends[right - 1])
        self._starts[left:right] = [first]
        self._ends[left:right] = [end]
        if self._starts[0] <= self._low:
            self._low = self._ends[0]
            del self._starts[0], self._ends[0]

    def rise(self, low: Offset) -> None:
        """Everything below `low` is done."""
        self.add(self._low, low)

    def copy(self) -> DoneRanges:
        """The same, apart from it."""
        other = DoneRanges(self._low)
        other._starts, other._ends = list(self._starts), list(self._ends)
        return other

    def add_each(self, offsets: list[Offset]) -> None:
        """All of `offsets`, of which no two are the same, are done; the list is sorted."""
        if not offsets:
            return
        offsets.sort()
        first = end = offsets[0]
        for offset in offsets:
            if offset != end:
                self.add(first, end)
                first = offset
            end = offset + 1
        self.add(first, end)

    def encode(self, attempts: Mapping[Offset, int] | None = None) -> str:
        """The map, and the failed attempts of offsets that are not done, as a short text."""
        at = self._low
        parts = []
        for first, end in self.runs():
            parts += [written(first - at), written(end - first)]
            at = end
        failed = sorted((offset, count) for offset, count in (attempts or {}).items() if count)
        if failed:
            parts.append(";")
            at = self._low
            for offset, count in failed:
                parts += [written(offset - at), written(count)]
                at = offset
        return VERSION + "".join(parts) if parts else ""

    def room_for(self, offsets: Sequence[Offset], chars: int = DETAIL_CHARS_MAX) -> int:
        """How many of `offsets` (rising, the first one the lowest that is not done) may be in work.

        However they end, and in whatever order, the map still fits into so many characters. One may
        always: when the lowest is done, the map only shrinks.
        """
        if not offsets:
            return 0
        # Each one that is done adds at most a run, and that is two numbers.
        digits = len(written(max(offsets[-1] + 1, self.high) - self._low))
        sparse = max(0, chars - len(self.encode() or VERSION)) // (2 * digits)
        # Below the last one there are at most as many characters as offsets; above it, what is now.
        tail = sum(digits for end in self._ends if end > offsets[0]) * 2
        dense = bisect_right(offsets, self._low + chars - tail - 2 * digits)
        return min(len(offsets), max(1, sparse, dense))

    @classmethod
    def decode(cls, low: Offset, text: str) -> tuple[DoneRanges, dict[Offset, int]]:
        """Read what `encode` wrote for the checkpoint `low`. Raises StoreCorrupted."""
        gaps = cls(low)
        if not text:
            return gaps, {}
        semicolons = {VERSION_WITH_SUSPECTS: 3, VERSION_WITH_LOG: 4}.get(text[:2])
        if semicolons is not None:
            if text.count(";") != semicolons:
                raise StoreCorrupted(f"the detail {text[:20]!r} has not all of its parts")
            done, failed, *_ = text[2:].split(";")
        elif text.startswith(VERSION):
            done, _, failed = text.removeprefix(VERSION).partition(";")
        else:
            raise StoreCorrupted(f"the detail {text[:20]!r} is of a newer version than this code")
        at = low
        for skipped, length in _pairs(done):
            gaps.add(at + skipped, at + skipped + length)
            at += skipped + length
        attempts = {}
        at = low
        for distance, count in _pairs(failed):
            at += distance
            attempts[at] = count
        return gaps, attempts


def done_to(checkpoint: Offset, detail: str) -> Offset:
    """The offset behind the highest one that a row says is done, however it was written down."""
    try:
        high = DoneRanges.decode(checkpoint, detail)[0].high
        named = named_in(checkpoint, detail)
        return high if named is None else max(high, named.high)
    except StoreCorrupted:  # of a newer version, or damaged: who works on it says so
        return checkpoint


def named_in(checkpoint: Offset, detail: str) -> NamedGaps | None:
    """Which records of the gap log a row names. Raises StoreCorrupted."""
    if not detail.startswith(VERSION_WITH_LOG):
        return None
    return NamedGaps.decode(checkpoint, detail.rsplit(";", 1)[1])


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    found = numbers(text)
    for first in found:
        second = next(chain(found, [-1]))
        if second < 0:
            raise StoreCorrupted("a gap map has half a pair")
        yield first, second
