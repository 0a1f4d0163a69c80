"""`ProducerFence`: of a producer that comes back, only the newest life may append.

Rules of this file. A producer with a name has a generation for each life, and an identity for each
generation: the name's prefix and the generation's number, so that each life numbers its frames from
0. The caller that begins a generation higher than any before, begins; from then on every frame of a
lower one is refused, whenever it arrives. A begun generation is on disk, synced, before it is
answered, and is never forgotten: an old life may come back late. A repeat of the same beginning
changes nothing. A process that stands beside its former one may have the lease before it has the
logs, so whoever writes looks at what is on disk first: the former one may have begun another.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.data.frame import PRODUCER_ID_BYTES, producer_of
from pxrs_ray.errors import LogCorrupted, ProducerFenced, UsageError
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass

PRODUCERS_MAX = 100_000
PREFIX_BYTES = 10
GENERATION_MAX = (1 << 8 * (PRODUCER_ID_BYTES - PREFIX_BYTES)) - 1
_NAME = "producers.json"


@dataclass(frozen=True, slots=True)
class ProducerLife:
    """The newest life of one producer of a queue; `token` identifies its beginning."""

    queue: str
    producer: str
    number: int
    token: str


GENERATIONS = json_codec("buffer: producers.json", list[ProducerLife], indent=1)


def named_producer_id(producer: str, generation: int) -> bytes:
    """The identity that the frames of one life of a producer bear."""
    tail = generation.to_bytes(PRODUCER_ID_BYTES - PREFIX_BYTES, "big")
    return _prefix(producer) + tail


def _prefix(producer: str) -> bytes:
    return blake2b(producer.encode(), digest_size=PREFIX_BYTES, person=b"producer").digest()


class ProducerFence:
    """See the rules at the head of this file. One writer at a time begins; any thread checks."""

    def __init__(self, folder: Path, files: Files) -> None:
        """Read what `folder` keeps. Raises LogCorrupted."""
        self._path = folder / _NAME
        self._files = files
        self._known = self._kept()

    def _kept(self) -> dict[tuple[str, bytes], ProducerLife]:
        try:
            found: list[ProducerLife] = GENERATIONS.decode(self._files.read_file(self._path))
        except FileNotFoundError:
            found = []
        except ValueError as error:
            raise LogCorrupted(
                f"{self._path}: not a list of producers ({error}): bring it back from a copy, or "
                "remove it once no producer with a producer_id of before runs any more"
            ) from error
        return {(each.queue, _prefix(each.producer)): each for each in found}

    def read_again(self) -> None:
        """Take in what another process has written, which had the folder until now."""
        kept = self._kept()
        newer = {
            place: each
            for place, each in self._known.items()
            if place not in kept or kept[place].number < each.number
        }
        self._known = {**kept, **newer}

    def begin(self, queue: str, producer: str, number: int, token: str) -> ProducerLife | None:
        """Begin generation `number`, unless a newer one (or this one, by another) has begun.

        Answers the newest there is then, which is the caller's own when it bears its token; with
        `number` 0 nothing is begun. Raises UsageError, DiskFull, OSError.
        """
        place = (queue, _prefix(producer))
        if number:
            self.read_again()
        known = self._known.get(place)
        if number == 0 or (known is not None and number <= known.number):
            return known
        if number > GENERATION_MAX:
            raise UsageError(f"generation {number} of a producer is above {GENERATION_MAX}")
        if known is None and len(self._known) >= PRODUCERS_MAX:
            raise UsageError(
                f"there are {PRODUCERS_MAX} producers with a producer_id: use ids that come back, "
                "not a new one each time"
            )
        begun = ProducerLife(queue, producer, number, token)
        self._save({**self._known, place: begun})
        return begun

    def check(self, queue: str, packed_header: bytes) -> None:
        """Let a frame pass. Raises ProducerFenced for one of a former life."""
        if not self._known:
            return
        identity = producer_of(packed_header)
        known = self._known.get((queue, identity[:PREFIX_BYTES]))
        if known is not None:
            number = int.from_bytes(identity[PREFIX_BYTES:], "big")
            if number < known.number:
                raise ProducerFenced(
                    f"producer {known.producer!r} of {queue!r} was started anew (generation "
                    f"{known.number}; this is {number}): what is not acknowledged yet may or may "
                    "not be in the log, and nothing more is taken of this one"
                )

    def lives(self) -> list[ProducerLife]:
        """The newest life of each producer that is known."""
        return list(self._known.values())

    def drop_queue(self, queue: str) -> None:
        """Forget the producers of a queue that is gone."""
        self.read_again()
        left = {place: each for place, each in self._known.items() if place[0] != queue}
        if len(left) < len(self._known):
            self._save(left)

    def _save(self, known: dict[tuple[str, bytes], ProducerLife]) -> None:
        self._files.replace(self._path, GENERATIONS.encode(list(known.values())), sync=True)
        self._known = known
