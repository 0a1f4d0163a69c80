"""Every kind of end that code can raise, also those that pass by `except Exception`."""

from __future__ import annotations

import asyncio


class BadlyTold(Exception):
    """An error whose own text cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no words for it")

    __str__ = __repr__


class OwnEnd(BaseException):
    """A user's own, below nothing but BaseException."""


KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        ValueError,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        asyncio.CancelledError,
        StopIteration,
        StopAsyncIteration,
        RecursionError,
        MemoryError,
        TimeoutError,
        OwnEnd,
        BadlyTold,
    )
}
