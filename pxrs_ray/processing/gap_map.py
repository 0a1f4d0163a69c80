"""`GapMap`: what of one partition is done above its checkpoint, and where each part of it is kept.
Pure.

Rules of this file. The map is in the detail of the partition's row. Where there is a *gap log*, and
half of the row is full, what the row holds goes into that log, as a record of the owner under its
epoch. Once the log has it, the row *names* the record, and itself holds only what is newer. A
record is full, or holds what came since the one before it; the first one of an owner is full, so
all that a row names is of one epoch. What the row cannot hold is not told before the log has it;
nothing that was told is ever left out again.

The next owner reads what the row names before it is offered any message. A record that is of
another epoch, or damaged, or gone, is left out: what it told of comes again. So is what lies behind
the named records. No record moves the checkpoint: the row alone says what is done for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Offset, Progress
from pxrs_ray.processing.done_ranges import DoneRanges, NamedGaps, named_in, numbers, written
from pxrs_ray.processing.suspects import Suspicion, decode_detail, encode_detail

# The most characters by which a row names its records.
NAMED_CHARS_MAX = 48
# How much, in rows, may be done and wait for the log, before no more begins than one at a time.
ROWS_WAITING_MAX = 64
# A record tells of so many runs, or failed messages, at most in one message of the log.
PART_RUNS_MAX = 2_000
# All is written anew when what was added since is longer than so many times all, and than this.
MORE_TIMES_MAX, MORE_CHARS_MIN = 4, 64 << 10


@dataclass(frozen=True, slots=True)
class GapRecord:
    """What is to be appended to the gap log: a message each, in one frame."""

    epoch: Epoch
    is_full: bool
    high: Offset
    texts: tuple[bytes, ...]

    @property
    def chars(self) -> int:
        """How long it is."""
        return sum(len(text) for text in self.texts)


@dataclass(slots=True)
class _Part:
    """Part of a map: runs that are done, and failed attempts."""

    gaps: DoneRanges
    failing: dict[Offset, int]

    def chars_at_most(self, digits: int) -> int:
        """An upper bound of its length, where no number in it has more `digits`."""
        return (2 * len(self.gaps) + 1) * digits + len(self.failing) * (digits + 2)


class GapMap:
    """See the rules at the head of this file."""

    def __init__(self, progress: Progress, chars: int, *, has_log: bool = False) -> None:
        """From a row. `has_log`: what does not fit into a row of so many `chars` has a log."""
        low = progress.checkpoint
        gaps, failing, self.suspicion_at_first = decode_detail(low, progress.detail)
        # Everything that is known to be done, or to have failed.
        self.done, self.failing = gaps, failing
        self.named = named_in(low, progress.detail)
        # Whether what the row names is to be read first.
        self.is_unread = self.named is not None
        self._chars, self._has_log = chars, has_log
        # What the named records do not hold: everything, while there are none.
        self._row = _Part(gaps, failing)
        self._sent: GapRecord | None = None
        # What has come since that was sent.
        self._since: _Part | None = None
        # Whether what is named is of this owner, and how long it is.
        self._is_own = False
        self._full_chars = self._more_chars = 0
        self._told = _Part(gaps.copy(), dict(failing))
        self._is_behind = False

    # --- what comes in ----------------------------------------------------------------------------

    def restore(self, texts: Iterable[bytes]) -> int:
        """Take in the records that the row names, as far as they were found; answers how many of
        their messages were of use."""
        assert self.is_unread and self.named is not None
        named, row, used = self.named, self._row, 0
        low = row.gaps.low
        self.done, self.failing = row.gaps.copy(), {}
        for text in texts:
            try:
                epoch, gaps, failing = _read(text)
            except StoreCorrupted:
                continue
            if epoch != named.epoch:
                continue
            used += 1
            for first, end in gaps.runs():
                # The row says of its checkpoint that it is not done.
                self.done.add(max(first, low + 1), min(end, named.high))
            self.failing.update(failing)
        self.failing.update(row.failing)
        for known in (self.failing, row.failing):
            for offset in [o for o in known if o in self.done]:
                del known[offset]
        self.is_unread = False
        return used

    def add_each(self, offsets: list[Offset]) -> None:
        """All of `offsets`, of which no two are the same, are done."""
        self.done.add_each(offsets)
        for part in self._apart():
            part.gaps.add_each(offsets)

    def pass_to(self, first: Offset, end: Offset) -> None:
        """Nothing from `first` to `end` will ever be offered."""
        self.done.add(first, end)
        for part in self._apart():
            part.gaps.add(first, end)
        for offset in [o for o in self.failing if o in self.done]:
            self.has_not_failed(offset)

    def has_failed(self, offset: Offset, attempts: int) -> None:
        """The message at `offset` has failed so often."""
        self.failing[offset] = attempts
        for part in self._apart():
            part.failing[offset] = attempts

    def has_not_failed(self, offset: Offset) -> None:
        """The message at `offset` is done, however it failed before."""
        self.failing.pop(offset, None)
        for part in self._apart():
            part.failing.pop(offset, None)

    def _apart(self) -> Iterator[_Part]:
        if self._row.gaps is not self.done:
            yield self._row
        if self._since is not None:
            yield self._since

    # --- the log ----------------------------------------------------------------------------------

    def record(self, epoch: Epoch, digits: int, other_chars: int) -> GapRecord | None:
        """What is to be appended to the log now; one at a time, until `kept` or `refused`."""
        row_chars = self._row.chars_at_most(digits)
        if not self._has_log or self._sent is not None or self.is_unread:
            return None
        if 2 * (row_chars + other_chars) < self._chars or 8 * row_chars < self._chars:
            return None
        more_max = max(MORE_CHARS_MIN, MORE_TIMES_MAX * self._full_chars)
        is_full = not self._is_own or self._more_chars > more_max
        what = _Part(self.done, self.failing) if is_full else self._row
        high = what.gaps.high
        if not is_full and self.named is not None:
            high = max(high, self.named.high)
        self._sent = GapRecord(epoch, is_full, high, tuple(_texts(epoch, what)))
        self._since = _Part(DoneRanges(self.done.low), {})
        return self._sent

    def sent(self, record: GapRecord, base: Offset | None) -> None:
        """What became of a record: see `kept` and `refused`."""
        if base is None:
            self.refused(record)
        else:
            self.kept(record, base)

    def kept(self, record: GapRecord, base: Offset) -> None:
        """The log has what was sent, from `base` on."""
        assert record is self._sent and self._since is not None
        end = base + len(record.texts)
        if record.is_full or self.named is None:
            self.named = NamedGaps(record.epoch, base, end, record.high)
            self._full_chars, self._more_chars = record.chars, 0
        else:
            self.named = replace(self.named, end=end, high=record.high)
            self._more_chars += record.chars
        self._row, self._is_own = self._since, True
        self._sent = self._since = None

    def refused(self, record: GapRecord) -> None:
        """The log will not have what was sent: it is sent anew, and all of it."""
        assert record is self._sent
        self._sent = self._since = None
        self._is_own = False

    # --- the row ----------------------------------------------------------------------------------

    @property
    def chars_max(self) -> int:
        """How long may be what no log has yet."""
        return self._chars * (ROWS_WAITING_MAX if self._has_log else 1)

    def chars_at_most(self, digits: int) -> int:
        """An upper bound of how long is what no log has yet."""
        named = NAMED_CHARS_MAX if self.named is not None else 0
        return self._row.chars_at_most(digits) + named

    def chars(self, suspicion: Suspicion) -> int:
        """How long is what no log has yet."""
        return len(self._encoded(self._row, suspicion))

    @property
    def is_behind(self) -> bool:
        """Whether the last detail could not tell everything."""
        return self._is_behind

    def detail(self, suspicion: Suspicion) -> str:
        """What the row says: everything, or what it said before while it has no room for more."""
        if self.is_unread:
            return self._encoded(self._row, suspicion)
        self._leave_the_log()
        text = self._encoded(self._row, suspicion)
        if not self._has_log:
            return text
        named_chars = len(self.named.encode(self.done.low)) if self.named is not None else 0
        room = self._chars - NAMED_CHARS_MAX + named_chars
        self._is_behind = len(text) > room
        if not self._is_behind:
            self._told = _Part(self._row.gaps.copy(), dict(self._row.failing))
            return text
        self._told.failing = {o: n for o, n in self._told.failing.items() if o in self.failing}
        return self._encoded(self._told, suspicion)

    def _leave_the_log(self) -> None:
        """Where a quarter of the row has room for everything, the log is of no use any more."""
        if self.named is None or self._sent is not None:
            return
        digits = len(written(self.done.high - self.done.low))
        whole = _Part(self.done, self.failing)
        if 4 * whole.chars_at_most(digits) < self._chars:
            self.named, self._row, self._is_own = None, whole, False

    def _encoded(self, part: _Part, suspicion: Suspicion) -> str:
        part.gaps.rise(self.done.low)
        return encode_detail(part.gaps, part.failing, suspicion, self.named)


def _texts(epoch: Epoch, what: _Part) -> Iterator[bytes]:
    runs, low = what.gaps.runs(), what.gaps.low
    while part := list(islice(runs, PART_RUNS_MAX)):
        gaps = DoneRanges(low)
        for first, end in part:
            gaps.add(first, end)
        yield _text(epoch, gaps, {})
    failing = iter(sorted(what.failing.items()))
    while failed := dict(islice(failing, PART_RUNS_MAX)):
        yield _text(epoch, DoneRanges(low), failed)


def _text(epoch: Epoch, gaps: DoneRanges, failing: Mapping[Offset, int]) -> bytes:
    return f"{written(epoch)}{written(gaps.low)};{gaps.encode(failing)}".encode()


def _read(text: bytes) -> tuple[Epoch, DoneRanges, dict[Offset, int]]:
    if not text.isascii():
        raise StoreCorrupted("a record of a gap log is no text")
    head, _, detail = text.decode().partition(";")
    found = list(numbers(head))
    if len(found) != 2:
        raise StoreCorrupted("a record of a gap log begins with an epoch and an offset")
    epoch, low = found
    return epoch, *DoneRanges.decode(low, detail)
