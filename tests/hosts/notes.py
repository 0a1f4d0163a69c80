"""What witnesses write: one line a fact, in a file that one process alone appends to.

Times are CLOCK_MONOTONIC in seconds, which every host of one machine shares. A message is named by
its key and its sequence number within that key; a key belongs to one producer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TypeVar

from tests.grown_files import GrownFiles


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer is about to send; noted before the product knows of it."""

    at_s: float
    key: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The product said where the message is."""

    at_s: float
    key: str
    sequence: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The product said that the message is nowhere, or that it does not know."""

    at_s: float
    key: str
    sequence: int
    error: str


@dataclass(frozen=True, slots=True)
class Handled:
    """A handler worked on a message from `from_s` to `to_s`."""

    from_s: float
    to_s: float
    host: str
    boot: str
    pid: int
    member: str
    incarnation: int
    partition: int
    offset: int
    epoch: int
    key: str
    sequence: int

    @property
    def worker(self) -> tuple[str, str, int, str, int]:
        """Which process, as which consumer."""
        return (self.host, self.boot, self.pid, self.member, self.incarnation)


Fact = Sent | Acknowledged | Refused | Handled
KINDS: dict[str, type[Fact]] = {
    kind.__name__: kind for kind in (Sent, Acknowledged, Refused, Handled)
}
SUFFIX = ".facts"
AnyFact = TypeVar("AnyFact", Sent, Acknowledged, Refused, Handled)


class Notes:
    """A process's own file in a folder that all hosts see. It opens at the first fact."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._file = -1

    def __reduce__(self) -> tuple[type[Notes], tuple[Path, str]]:
        return (Notes, (self.folder, self.name))

    def write(self, *facts: Fact) -> None:
        """One system call: a kill leaves no half of a line behind."""
        if self._file < 0:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
            name = f"{self.name}-{os.uname().nodename}-{boot}-{os.getpid()}{SUFFIX}"
            self._file = os.open(
                self.folder / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY, mode=0o644
            )
        lines = [json.dumps([type(fact).__name__, *astuple(fact)]) for fact in facts]
        os.write(self._file, ("\n".join(lines) + "\n").encode())


def _fact(line: bytes) -> Fact:
    kind, *values = json.loads(line)
    return KINDS[kind](*values)


_GROWN = GrownFiles(_fact)


def read(folder: Path) -> list[Fact]:
    """Every fact that any process noted, in no particular order."""
    return _GROWN.lines_of(sorted(folder.glob(f"*{SUFFIX}")))


def of(kind: type[AnyFact], facts: Iterable[Fact]) -> list[AnyFact]:
    """The facts of one kind."""
    return [fact for fact in facts if isinstance(fact, kind)]
