"""The nouns of processing: `Item`, `Task`, and the contract of every `WorkScheduler`.

Rules of this file. An item is one message of the partition; a task is one thing to be done with
items, now. A scheduler never gives out a task twice while it runs, and ignores the result of a task
that it no longer waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, Progress
from pxrs_ray.processing.suspects import Suspect


@dataclass(eq=False, slots=True)
class Item:
    """One message in work. `message` is opaque here: what the handler's argument is made of.

    `behind` is the next message of its lane, where a scheduler keeps lanes.
    """

    offset: Offset
    key: bytes | None = None
    tenant: str = ""
    message: Any = None
    size_bytes: int = 0
    attempts: int = 0
    error: str = ""
    suspect: Suspect | None = None
    behind: Item | None = None

    def __repr__(self) -> str:
        return f"Item({self.offset}, key={self.key!r}, attempts={self.attempts})"


class Work(StrEnum):
    """What is to be done with the items of a task."""

    HANDLE = "handle"
    GIVE_UP = "give up"
    PARK = "park"


@dataclass(eq=False, slots=True)
class Task:
    """Do `work` with `items`, in their order. `attempt` is 1 for the first.

    `due_ms` is when it has taken too long; a later result is ignored.
    """

    work: Work
    items: tuple[Item, ...]
    attempt: int = 1
    due_ms: int | None = None
    over: bool = field(default=False)

    @property
    def item(self) -> Item:
        """The only item of a task that handles one."""
        return self.items[0]


class WorkScheduler(Protocol):
    """Schedules the work of one partition under one epoch. Not thread-safe; the caller passes the
    time."""

    def offer(self, items: Sequence[Item]) -> None:
        """Take the next messages, in the order of their offsets."""

    def skip(self, to: Offset) -> None:
        """The log has nothing before `to` that was not offered."""

    def has_room(self) -> bool:
        """Whether more messages should be offered: there is room, and too little that may begin."""

    def take(self, now_ms: int, room: int) -> list[Task]:
        """Up to `room` tasks that may begin now."""

    def ended(self, task: Task, error: str | None, now_ms: int) -> None:
        """A task has ended, well or with an error."""

    def expire(self, now_ms: int) -> list[Task]:
        """Give up waiting for what has taken too long, and name it: each has failed once more."""

    def due_ms(self) -> int | None:
        """When `take` or `expire` should be called again although nothing ended."""

    def progress(self) -> Progress:
        """How far it is."""

    @property
    def stopped_by(self) -> Item | None:
        """The item that failed for good under the policy to stop: nothing begins any more."""
