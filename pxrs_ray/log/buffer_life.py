"""`BufferLife`: whether a buffer may open what lies on the disk here, and when its process begins
anew. Pure.

Rules of this file. A buffer belongs to one disk; which one it is says whoever made it, or else the
first disk that it finds. Nothing is opened on another: an emptied folder, or another host's, is
another disk. A buffer that has closed its logs serves nobody, and its coordinator alone wakes it:
the logs may be on their way to another disk. What does not close ends with its process.
"""

from __future__ import annotations

from enum import Enum, auto

from pxrs_ray.errors import BufferAway, LeaseOver


class Woken(Enum):
    """What a buffer does before it answers who has asked it."""

    GO_ON = auto()
    BEGIN_ANEW = auto()
    END_PROCESS = auto()


class BufferLife:
    """One process of a buffer: the lives that it has, one after the other.

    `disk_id` is the disk that it belongs to, '' while it has found none; `here` the one that is at
    `where`.
    """

    def __init__(self, index: int, where: object, disk_id: str) -> None:
        self.disk_id = disk_id
        self.begins()
        self._index, self._where = index, where

    def begins(self) -> None:
        """Begin a life: the first one, or another after `is_closed`."""
        self.here = ""
        self.is_open = self.is_closed = self._rests = False

    def sees_disk(self, disk_id: str) -> bool:
        """This disk is here ('' for none). Answers whether what lies on it is to be opened."""
        self.here = disk_id
        self.disk_id = self.disk_id or disk_id
        return self.here == self.disk_id and not self.is_open

    def opened(self) -> None:
        """What lies on the disk is open."""
        self.is_open = True

    def closes(self) -> bool:
        """Its logs are to be closed; False when they are. Raises BufferAway when that was tried,
        and has failed."""
        if self.is_closed and not self._rests:
            raise BufferAway(f"buffer {self._index} did not close its logs: end its process")
        begins, self.is_closed = not self.is_closed, True
        return begins

    def is_at_rest(self) -> None:
        """All of it is closed."""
        self._rests = True

    def asked(self, *, by_coordinator: bool) -> Woken:
        """Somebody looks at it. Raises LeaseOver to all but its coordinator when it is closed."""
        if not self.is_closed:
            return Woken.GO_ON
        if not by_coordinator:
            raise LeaseOver(f"buffer {self._index} has closed its logs, and serves nothing")
        # In this process: on a node that is drained Ray starts none, and takes the node away with
        # the logs when its last one ends. But it was cut off while it closed, or does not close.
        return Woken.BEGIN_ANEW if self._rests else Woken.END_PROCESS

    def check_open(self) -> None:
        """Raise LeaseOver when nothing is open here."""
        if not self.is_open:
            raise LeaseOver(self.problem)

    @property
    def problem(self) -> str:
        """Why nothing can be served here; '' when something can."""
        if self.is_open:
            return ""
        found = f"disk {self.here}" if self.here else "no disk of PXRS"
        return (
            f"buffer {self._index} belongs to disk {self.disk_id}, and {self._where} is {found}: "
            "it serves nothing"
        )
