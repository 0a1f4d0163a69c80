"""Moments, lengths of time and sizes, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

CLOCK_MS_MAX = 253_402_214_400_000  # the last day of year 9999, which any time zone can show


def clock_text(at_ms: int) -> str:
    """A moment as local time of day, with the date; as it stands, where no calendar has it."""
    if not 0 <= at_ms <= CLOCK_MS_MAX:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span_text(milliseconds: float | None) -> str:
    """A length of time as people say it: 40 ms, 3.2 s, 5 min, 2.0 h."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def size_text(size_bytes: float) -> str:
    """A size as people say it: 40 B, 3.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1_000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.1f} TB"
