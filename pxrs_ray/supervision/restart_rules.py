"""Restart policy: what happens to a loop, a thread or a partition that failed. Pure.

Rules of this file. Whatever is raised (BaseException, so `sys.exit()` too) fails the smallest unit
that it concerns. The failure is reported (`Troubles`, which status shows, and the log), and the
unit starts again after a pause that doubles. A unit that fails too often in a row is given up,
which is reported to the owner of the larger unit, to fail that. Nothing ends silently. The clock is
the monotonic one.
"""

from __future__ import annotations

from pxrs_ray.backoff import pause_after
from pxrs_ray.late_dataclass import dataclass

# How much of an error's text is kept and sent: a handler may put a whole payload into it.
ERROR_CHARS_MAX = 2_000
LINE_CHARS_MAX = 300
# Without a fault for so long, a unit has got over its last one.
QUIET_S = 60.0


def told(error: BaseException, chars_max: int = ERROR_CHARS_MAX) -> str:
    """The error in words: whole or cut, and always there, whatever its own `repr` does."""
    try:
        text = repr(error)
        text = text.encode(errors="backslashreplace").decode()
    except BaseException as worse:  # noqa: BLE001 - a user's __repr__ may raise anything
        text = f"{type(error).__name__} (its repr raised {type(worse).__name__})"
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}... ({len(text)} characters)"


def first_line(error: BaseException | str) -> str:
    """The first line of it, or its type's name where it says nothing."""
    return _lines(error)[0][:LINE_CHARS_MAX]


def first_sentence(error: BaseException) -> str:
    """The first sentence of its first line."""
    return first_line(error).partition(". ")[0]


def last_line(error: BaseException) -> str:
    """The last line of what it says: in Ray's, what went wrong stands below where."""
    return _lines(error)[-1][:LINE_CHARS_MAX]


def _lines(error: BaseException | str) -> list[str]:
    try:
        lines = [line.strip() for line in str(error).splitlines()]
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        lines = []
    return [line for line in lines if line] or [type(error).__name__]


@dataclass(frozen=True, slots=True)
class RestartRules:
    """How soon a unit starts again, and how many faults in a row are too many (0: never).

    Faults that are further apart than `quiet_s` are not in a row.
    """

    pause_first_s: float = 0.1
    pause_most_s: float = 10.0
    faults_max: int = 0
    quiet_s: float = QUIET_S


class FaultsInARow:
    """The faults of one unit in a row."""

    def __init__(self, rules: RestartRules) -> None:
        self.count = 0
        self._rules = rules
        self._last_s = float("-inf")

    def failed(self, now_s: float) -> float | None:
        """Count a fault: how long to rest before beginning again, or None to give it up."""
        rules = self._rules
        if now_s - self._last_s > rules.quiet_s:
            self.count = 0
        self.count += 1
        self._last_s = now_s
        if rules.faults_max and self.count >= rules.faults_max:
            return None
        return pause_after(self.count, rules.pause_first_s, rules.pause_most_s)


@dataclass(frozen=True, slots=True)
class _Trouble:
    text: str
    until_s: float
    times: int


class Troubles:
    """What is wrong at the moment, by place. Callable from any thread: each step is one of dict's.

    The trouble of a unit that starts again by itself is shown until it is `over`, or has been quiet
    for `quiet_s`.
    """

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._found: dict[str, _Trouble] = {}

    def note(self, place: str, text: str, now_s: float, *, for_good: bool = False) -> None:
        """Something is wrong at `place`."""
        until_s = float("inf") if for_good else now_s + self._quiet_s
        before = self._found.get(place)
        fresh = before is None or before.until_s < now_s
        times = 1 if before is None or fresh else before.times + 1
        self._found[place] = _Trouble(text, until_s, times)

    def over(self, place: str) -> None:
        """All is well at `place`."""
        self._found.pop(place, None)

    def told(self, now_s: float) -> tuple[str, ...]:
        """Everything that is wrong now, a line each."""
        lines = []
        for place, trouble in list(self._found.items()):
            if trouble.until_s < now_s:
                self._found.pop(place, None)
                continue
            often = f" ({trouble.times} times)" if trouble.times > 1 else ""
            lines.append(f"{place}{often}: {trouble.text}")
        return tuple(lines)
