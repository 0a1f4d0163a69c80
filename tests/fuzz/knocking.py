"""`Door`, and `knock`: gives rubbish to a door, and tells what came of it.

Rules of this file. A door is given bytes. It returns, or raises what it is allowed to raise;
anything else is a finding, and so is an answer that takes longer than `SLOW_S`. A door brings
samples of what is right there, for rubbish that is nearly right gets furthest.
"""

from __future__ import annotations

import io
import os
import random
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

SLOW_S = 20.0
Give = Callable[[bytes], None]


@dataclass(frozen=True)
class Door:
    """Where bytes come in. `open` makes what takes them, and cleans up behind it."""

    name: str
    open: Callable[[], Any]
    samples: tuple[bytes, ...] = ()
    costly: int = field(default=1)  # how many other calls one of its calls is worth


class Hangs(AssertionError):
    """No answer came in `SLOW_S`."""


@contextmanager
def answered_in(seconds: float) -> Iterator[None]:
    """Raise Hangs in the main thread when the block takes longer."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hangs(f"no answer in {seconds:g} s")

    former = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def plain(call: Callable[[bytes], object], *allowed: type[BaseException]) -> Callable[[], Any]:
    """A door that is one call."""

    @contextmanager
    def opened() -> Iterator[Give]:
        def give(data: bytes) -> None:
            try:
                call(data)
            except allowed as refused:
                assert str(refused) or refused.args, "a refusal says what is wrong"

        yield give

    return opened


def text_of(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def in_file(name: str, read: Callable[[Path], object], *allowed: type[BaseException]) -> Any:
    """A door that is a file."""

    @contextmanager
    def opened() -> Iterator[Give]:
        with tempfile.TemporaryDirectory(prefix="pxrs-fuzz-") as folder:
            path = Path(folder) / name

            def give(data: bytes) -> None:
                path.write_bytes(data)
                try:
                    read(path)
                except allowed as refused:
                    assert str(refused)

            yield give

    return opened


def rubbish(rng: random.Random, samples: tuple[bytes, ...]) -> bytes:
    """Random bytes, or a sample that was tampered with."""
    if not samples or rng.random() < 0.25:
        return rng.randbytes(rng.choice([0, 1, 8, 40, 300, 3_000]))
    data = bytearray(rng.choice(samples))
    for _ in range(rng.choice([0, 1, 1, 2, 8])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 20))
        elif kind == 2:
            del data[at : at + rng.randint(1, 30)]
        elif kind == 3:
            data[at:at] = data[at : at + rng.randint(1, 60)]
        elif kind == 4 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        else:
            data[at:at] = rng.choice(
                [b"\x00", b"\n", b"\r\n", b"9" * 400, b"[" * 2_000, b'"', b"\xff", b"\xed\xa0\x80"]
            )
    return bytes(data)


@dataclass
class Found:
    """What was wrong: at which door, by which bytes."""

    door: str
    data: bytes
    error: str


def knock(door: Door, rng: random.Random, calls: int) -> Iterator[Found]:
    """Give a door rubbish so many times."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()), door.open() as give:
        warnings.simplefilter("ignore")
        for number in range(calls):
            sample = number < len(door.samples)
            data = door.samples[number] if sample else rubbish(rng, door.samples)
            _note_last(data)
            try:
                with answered_in(SLOW_S):
                    give(data)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                yield Found(door.name, data, f"{type(error).__name__}: {error}"[:500])


def _note_last(data: bytes) -> None:
    """For a crash of the interpreter: what was given last."""
    path = os.environ.get("PXRS_FUZZ_LAST")
    if path:
        Path(path).write_bytes(data)
