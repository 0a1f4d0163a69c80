"""What every checker is."""

from __future__ import annotations

from dataclasses import dataclass

FOUND_MAX = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    checker: str
    at_ms: int
    text: str

    def __str__(self) -> str:
        return f"{self.checker} at {self.at_ms} ms: {self.text}"


class Checker:
    """Reads a history event by event: method `on_<kind>` gets each event of that kind.

    The docstring of each subclass is the promise. After a few violations it stays silent: what
    follows a broken promise says little.
    """

    def __init__(self) -> None:
        self.found: list[Violation] = []

    def broken(self, at_ms: int, text: str) -> None:
        """Note that the promise was broken."""
        if len(self.found) < FOUND_MAX:
            self.found.append(Violation(type(self).__name__, at_ms, text))
