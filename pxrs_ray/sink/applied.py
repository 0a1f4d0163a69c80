"""Which messages are applied, exactly: pages of offsets, and how they are written down.

Rules of this file. A page is `PAGE_OFFSETS` consecutive offsets as the bits of a number. A page
is written as runs (`r0-11,13-90`) while they are few, as a bitmap (`b` and base64) when they are
many, and as `*` when it is full, so that no pattern of gaps outgrows a column of 4,000 characters.
Full pages leave their rows: they are kept as runs of page numbers beside the epoch, as long as
those fit there.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator

from pxrs_ray.codec import Codec, register
from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.model import Offset

PAGE_OFFSETS = 8_192
TEXT_CHARS_MAX = 4_000
_RUNS_MAX = 100
_FULL = "*"
FULL_BITS = (1 << PAGE_OFFSETS) - 1
Run = tuple[int, int]


def page_of(offset: Offset) -> int:
    """The number of the page that `offset` is on."""
    return offset // PAGE_OFFSETS


def bits_of(first: int, end: int) -> int:
    """A number whose bits `first` up to, not including, `end` are set."""
    return ((1 << (end - first)) - 1) << first


def runs_of(bits: int) -> Iterator[Run]:
    """First and end of each run of set bits, in order."""
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        yield at + zeros, at + zeros + ones
        at += zeros + ones


def runs_text(runs: Iterable[Run]) -> str:
    """Runs as `0-11,13-90`: first and last of each."""
    return ",".join(f"{first}-{end - 1}" for first, end in runs)


def runs_from(text: str) -> tuple[Run, ...]:
    """What `runs_text` wrote. Raises ValueError when the text is not of it."""
    found: list[Run] = []
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        run = int(first), int(last) + 1
        if not dash or run[0] >= run[1] or run[0] < (found[-1][1] if found else 0):
            raise ValueError(f"{part!r} is no run behind {found[-1:]}")
        found.append(run)
    return tuple(found)


def page_text(bits: int) -> str:
    """A page as it is written down; its applied offsets are the set bits."""
    if bits == FULL_BITS:
        return _FULL
    if (bits & ~(bits << 1)).bit_count() <= _RUNS_MAX:
        return "r" + runs_text(runs_of(bits))
    return "b" + base64.b64encode(bits.to_bytes(PAGE_OFFSETS // 8, "little")).decode()


def page_from(text: str) -> int:
    """What `page_text` wrote. Raises ValueError when the text is not of it."""
    if text == _FULL:
        return FULL_BITS
    if text.startswith("b"):
        try:
            data = base64.b64decode(text[1:], validate=True)
        except binascii.Error as error:
            raise ValueError(f"not a bitmap: {error}") from error
        bits = int.from_bytes(data, "little")
    elif text.startswith("r"):
        bits = sum(bits_of(first, end) for first, end in runs_from(text[1:]))
    else:
        raise ValueError(f"{text[:20]!r} is no page of a sink")
    if bits > FULL_BITS:
        raise ValueError("a page of a sink holds more than its offsets")
    return bits


PAGE_CODEC: Codec[int] = register(
    Codec("sink: page", int, lambda bits: page_text(bits).encode(), lambda d: page_from(d.decode()))
)
FULL_PAGES_CODEC: Codec[tuple[Run, ...]] = register(
    Codec(
        "sink: full pages",
        tuple[Run, ...],
        lambda runs: runs_text(runs).encode(),
        lambda data: runs_from(data.decode()),
    )
)


class Applied:
    """What is known of the offsets `first` to `end` of one partition: the pages that they touch."""

    def __init__(self, pages: dict[int, int], full_pages: tuple[Run, ...]) -> None:
        """`pages` are those that have rows; `full_pages` are those that have none any more."""
        self.pages = pages
        self.full_pages = full_pages
        self.stored = frozenset(pages)

    @classmethod
    def read(cls, rows: Iterable[tuple[int, str]], full_pages: str) -> Applied:
        """From the texts of the rows. Raises StoreCorrupted."""
        try:
            pages = {int(page): PAGE_CODEC.decode_text(text) for page, text in rows}
            return cls(pages, FULL_PAGES_CODEC.decode_text(full_pages))
        except ValueError as error:
            raise StoreCorrupted(f"the sink's rows cannot be read: {error}") from error

    def _bits(self, page: int) -> int:
        if any(first <= page < end for first, end in self.full_pages):
            return FULL_BITS
        return self.pages.get(page, 0)

    def missing(self, first: Offset, end: Offset) -> list[Run]:
        """The runs of `first` up to, not including, `end` that are not applied."""
        found: list[Run] = []
        for page, low, high in _parts(first, end):
            base = page * PAGE_OFFSETS
            for start, stop in runs_of(bits_of(low, high) & ~self._bits(page)):
                if found and found[-1][1] == base + start:
                    found[-1] = (found[-1][0], base + stop)
                else:
                    found.append((base + start, base + stop))
        return found

    def add(self, first: Offset, end: Offset) -> set[int]:
        """Offsets `first` up to, not including, `end` are applied; answer which pages changed."""
        changed = set()
        for page, low, high in _parts(first, end):
            self.pages[page] = self._bits(page) | bits_of(low, high)
            changed.add(page)
        return changed

    def fold(self) -> frozenset[int]:
        """Move full pages out of `pages` where their runs fit; answer which have no row now."""
        folded = set()
        for page in sorted(page for page, bits in self.pages.items() if bits == FULL_BITS):
            runs = _with_page(self.full_pages, page)
            if len(runs_text(runs)) > TEXT_CHARS_MAX:
                continue
            self.full_pages = runs
            del self.pages[page]
            folded.add(page)
        return frozenset(folded)


def _parts(first: Offset, end: Offset) -> Iterator[tuple[int, int, int]]:
    """The pages that offsets are on: number, first and end bit."""
    for page in range(page_of(first), page_of(end - 1) + 1 if end > first else 0):
        base = page * PAGE_OFFSETS
        yield page, max(first - base, 0), min(end - base, PAGE_OFFSETS)


def _with_page(runs: tuple[Run, ...], page: int) -> tuple[Run, ...]:
    joined: list[Run] = []
    for first, end in sorted((*runs, (page, page + 1))):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return tuple(joined)
