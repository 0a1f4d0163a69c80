"""`Scrub`: reads again what lies sealed on a buffer's disk, a piece at a time, and finds what is
damaged there. The caller runs each step where files may be read, and paces it.

Rules of this file. A sealed segment changes no more: who reads it needs no lock, and one that is
not there any more was dropped. A log may be cut, or go, while it is read. So what is found is
looked at once more, as a job of the logs' writer, before anybody acts on it. What cannot be read
now is no damage: it is read again in the next round.
"""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.segment import FILE_HEADER_BYTES, Segment
from pxrs_ray.model import Offset, QueuePartition

# So much is read in a step, and a frame more; so long is the rest after it, and after a round.
PIECE_BYTES = 1 << 20
STEP_REST_S = 1.0
ROUND_REST_S = 3_600.0

Logs = Mapping[QueuePartition, PartitionLog]


@dataclass(frozen=True, slots=True)
class Damaged:
    """A sealed segment of a log that is not what was written: from this position on."""

    place: QueuePartition
    base_offset: Offset
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class _At:
    """The segment that is read next, and from where."""

    place: QueuePartition
    base_offset: Offset
    position: int = FILE_HEADER_BYTES


class Scrub:
    """The rounds of one buffer; see the rules at the head of this file."""

    def __init__(self, files: Files) -> None:
        self.rest_s = STEP_REST_S
        self._files = files
        self._at: _At | None = None

    def step(self, logs: Logs) -> Damaged | None:
        """Read the next piece; what is damaged there. Where that was the last one, a round is
        over."""
        found = self._next(logs)
        self.rest_s = STEP_REST_S if found is not None else ROUND_REST_S
        if found is None:
            self._at = None
            return None
        at, segment = found
        self._at = _At(at.place, at.base_offset + 1)
        try:
            read_to = self._read(segment, at.position)
        except LogCorrupted as error:
            return Damaged(at.place, at.base_offset, at.position, str(error))
        except OSError:
            return None
        if read_to is not None:
            self._at = _At(at.place, at.base_offset, read_to)
        return None

    def is_so(self, found: Damaged, logs: Logs) -> bool:
        """Whether that is damaged yet, for the logs' writer."""
        log = logs.get(found.place)
        for segment in log.sealed() if log is not None else ():
            if segment.base_offset == found.base_offset:
                try:
                    self._read(segment, found.position)
                except LogCorrupted:
                    return True
                except OSError:
                    return False
        return False

    def _next(self, logs: Logs) -> tuple[_At, Segment] | None:
        at = self._at or _At(("", 0), 0)
        for place, log in sorted(logs.items()):
            for segment in log.sealed() if place >= at.place else ():
                if segment.empty or (place, segment.base_offset) < (at.place, at.base_offset):
                    continue
                goes_on = (place, segment.base_offset) == (at.place, at.base_offset)
                position = at.position if goes_on else FILE_HEADER_BYTES
                return _At(place, segment.base_offset, position), segment
        return None

    def _read(self, segment: Segment, position: int) -> int | None:
        """Read a piece from there on; where the next one begins, None at the end."""
        begun = position
        for header, _ in segment.frames(self._files, position):
            position += header.frame_bytes
            if position - begun >= PIECE_BYTES:
                return position
        return None
