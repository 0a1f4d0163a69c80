"""`Source`: the contract of an external queue, in these docstrings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One message of a source. Offsets rise from message to message, and need not be dense.

    `error` says why it cannot be given to a handler: then the failure policy applies at once.
    """

    offset: Offset
    key: bytes | None
    payload: bytes
    timestamp_ms: int = 0
    headers: tuple[tuple[str, bytes], ...] = field(default=())
    error: str = ""


class Source(ABC):
    """A queue that somebody else keeps, and that can be read from any offset again and again.

    An offset is an integer from 0 to 2**62 that belongs to one message for ever. Every consumer
    opens a source of its own and uses it from one thread at a time.
    """

    @abstractmethod
    def end(self) -> Offset:
        """The offset behind the newest message: 0 when there never was one."""

    @abstractmethod
    def read(self, offset: Offset, records_max: int, wait_ms: int) -> Sequence[SourceRecord]:
        """The first messages at or behind `offset`, in order, at most `records_max`.

        Waits up to `wait_ms` when there is none, and answers nothing then. Two reads of the same
        offsets give the same messages; a message that appears later has a higher offset than all
        that were read before. What the source no longer keeps is passed over. Trouble with one
        record is said in its `error`; what is raised is trouble of the source, and tried again.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back every connection and file; calling it again is harmless."""
