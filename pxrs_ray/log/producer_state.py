"""What a partition log remembers of its producers, so that a repeated append adds nothing twice.

Rules of this file. A producer numbers its frames for a partition 0, 1, 2, ... within an epoch of
its own. The log takes exactly the next number. It answers a number it had with the first answer,
and refuses a number that skips ahead (SequenceGap) and an epoch older than the newest it has seen
(ProducerFenced). A producer that the log does not know, or that raised its epoch, starts at 0.
Where the first frame of an epoch says what it follows, it is taken only if the producer is at
exactly that position (SequenceGap): nothing of the former epoch can have come in unseen. The state
is part of the log: it is rebuilt from a snapshot and the frames after it. For how long a producer
has been silent is measured by a time of the log's own, see `tick`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from pxrs_ray.codec import Codec, register
from pxrs_ray.data.frame import NOBODY, FrameHeader, mark
from pxrs_ray.data.protocol import Heard
from pxrs_ray.errors import LogCorrupted, ProducerFenced, SequenceConflict, SequenceGap
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset

ANSWERS_MAX = 64
STEP_MS_MAX = 3_600_000
_CHECKSUM_BYTES = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """What one sequence was answered, and what shows that a repeat is the same frame."""

    sequence: int
    base_offset: Offset
    messages: int
    body_checksum: int


@dataclass(slots=True)
class KnownProducer:
    """One producer's newest epoch, next sequence and latest answers."""

    epoch: int
    next_sequence: int
    seen_ms: int
    answers: deque[Answer] = field(default_factory=lambda: deque(maxlen=ANSWERS_MAX))


@dataclass(frozen=True, slots=True)
class ProducersSnapshot:
    """The state at one end of the log: by producer id, least recently heard first.

    `age_ms` is the log's own time, which the producers' `seen_ms` are dated by. A producer has at
    least one answer, and at most ANSWERS_MAX.
    """

    end_offset: Offset
    age_ms: int
    producers: dict[bytes, KnownProducer]


_SCHEMA = pa.schema(
    [
        ("producer", pa.binary(16)),
        ("epoch", pa.int64()),
        ("next_sequence", pa.int64()),
        ("seen_ms", pa.int64()),
        ("sequence", pa.int64()),
        ("base_offset", pa.int64()),
        ("messages", pa.int64()),
        ("body_checksum", pa.uint64()),
    ]
)


class ProducerStates:
    """All producers of one partition, least recently heard first."""

    def __init__(self, producers_max: int, idle_ms: int) -> None:
        self._producers: dict[bytes, KnownProducer] = {}
        self._producers_max = producers_max
        self._idle_ms = idle_ms
        self._age_ms = 0
        self._ticked_ms: int | None = None

    def __len__(self) -> int:
        return len(self._producers)

    def expected(self, producer_id: bytes, epoch: int) -> int:
        """The sequence that the log would take next of this producer in this epoch."""
        known = self._producers.get(producer_id)
        return known.next_sequence if known is not None and known.epoch == epoch else 0

    def heard(self, producer_id: bytes, epoch: int) -> Heard | None:
        """Where a producer stands; None when it is not known.

        For one that believes itself in another `epoch`, with the places of its latest frames.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return None
        answers = known.answers if epoch != known.epoch else ()
        places = tuple((answer.sequence, answer.base_offset) for answer in answers)
        return Heard(known.epoch, known.next_sequence, places)

    def repeat(self, header: FrameHeader, pending: int = 0) -> Answer | None:
        """None for a frame that is next in line; the first answer for one that was there before.

        `pending` frames of the same producer and epoch are about to be recorded before it. An
        answer with base offset -1 says: it was there, so long ago that nothing else is known.
        Raises SequenceGap, ProducerFenced, and SequenceConflict for a repeat with other content.
        """
        known = self._producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            raise ProducerFenced(
                f"producer epoch {header.producer_epoch} is older than {known.epoch}: a newer "
                "producer of this identity took over"
            )
        expected = self.expected(header.producer_id, header.producer_epoch) + pending
        if header.sequence == expected:
            if known is None or header.producer_epoch > known.epoch:
                self._check_follows(header, known)
            return None
        if header.sequence > expected:
            raise SequenceGap(f"sequence {header.sequence} skips ahead: {expected} is next")
        assert known is not None
        for answer in known.answers:
            if answer.sequence == header.sequence:
                if (answer.messages, answer.body_checksum) != (
                    header.messages,
                    header.body_checksum,
                ):
                    raise SequenceConflict(
                        f"sequence {header.sequence} was appended before with other content: "
                        f"{answer.messages} messages at offset {answer.base_offset}, now "
                        f"{header.messages}"
                    )
                return answer
        return Answer(header.sequence, -1, header.messages, header.body_checksum)

    def _check_follows(self, header: FrameHeader, known: KnownProducer | None) -> None:
        stands = mark(known.epoch, known.next_sequence) if known is not None else mark(NOBODY, 0)
        if header.follows is not None and header.follows != stands:
            raise SequenceGap(
                f"epoch {header.producer_epoch} was to follow {tuple(header.follows)}, but its "
                f"producer stands at {tuple(stands)}"
            )

    def record(self, header: FrameHeader, now_ms: int) -> None:
        """Remember a frame that is in the log, with its base offset in the header."""
        if now_ms != self._ticked_ms:
            self.tick(now_ms)
        known = self._producers.pop(header.producer_id, None)
        if known is None or known.epoch != header.producer_epoch:
            known = KnownProducer(header.producer_epoch, 0, self._age_ms)
        known.next_sequence = header.sequence + 1
        known.seen_ms = self._age_ms
        known.answers.append(
            Answer(header.sequence, header.base_offset, header.messages, header.body_checksum)
        )
        self._producers[header.producer_id] = known
        self._forget()

    def _forget(self) -> None:
        while self._producers:
            oldest = next(iter(self._producers))
            silent_ms = self._age_ms - self._producers[oldest].seen_ms
            if len(self._producers) <= self._producers_max and silent_ms <= self._idle_ms:
                return
            del self._producers[oldest]

    def tick(self, now_ms: int) -> None:
        """Let time pass up to `now_ms`, however the caller's clock came there.

        Time here only rises, and by no more than an hour a step: a clock that was years behind
        and is mended makes nobody silent for years.
        """
        if self._ticked_ms is not None:
            self._age_ms += min(max(0, now_ms - self._ticked_ms), STEP_MS_MAX)
        self._ticked_ms = now_ms

    def snapshot(self, end_offset: Offset) -> bytes:
        """All of this state, as it is when the log ends at `end_offset`; see `restore`."""
        return SNAPSHOT.encode(ProducersSnapshot(end_offset, self._age_ms, self._producers))

    def restore(self, data: bytes, log_end: Offset) -> Offset:
        """Take over a snapshot; answer the end offset that it was made at.

        Raises LogCorrupted, and then changes nothing, when it is not whole, or of a log that
        reached further than `log_end`.
        """
        try:
            found = SNAPSHOT.decode(data)
        except ValueError as error:
            raise LogCorrupted(f"the producers' snapshot: {error}") from error
        if found.end_offset > log_end:
            raise LogCorrupted(f"the producers' snapshot is of offset {found.end_offset}")
        self._producers, self._age_ms = found.producers, found.age_ms
        return found.end_offset


def _encode(snapshot: ProducersSnapshot) -> bytes:
    rows = [
        (
            producer_id,
            known.epoch,
            known.next_sequence,
            known.seen_ms,
            answer.sequence,
            answer.base_offset,
            answer.messages,
            answer.body_checksum,
        )
        for producer_id, known in snapshot.producers.items()
        for answer in known.answers
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    about = {"end_offset": str(snapshot.end_offset), "age_ms": str(snapshot.age_ms)}
    table = pa.Table.from_arrays(
        [pa.array(column, f.type) for column, f in zip(columns, _SCHEMA, strict=True)],
        schema=_SCHEMA.with_metadata(about),
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data + xxh3_64_intdigest(data).to_bytes(_CHECKSUM_BYTES, "little")


def _decode(data: bytes) -> ProducersSnapshot:
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if xxh3_64_intdigest(body).to_bytes(_CHECKSUM_BYTES, "little") != checksum:
        raise ValueError("its checksum is wrong")
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        about = table.schema.metadata
        end_offset = int(about[b"end_offset"])
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise ValueError(f"it is none: {error}") from error
    producers: dict[bytes, KnownProducer] = {}
    for producer_id, epoch, next_sequence, seen_ms, *answer in rows:
        known = producers.setdefault(producer_id, KnownProducer(epoch, next_sequence, seen_ms))
        known.answers.append(Answer(*answer))
    # One that an older version wrote dates by the wall clock; only differences count.
    oldest = max((known.seen_ms for known in producers.values()), default=0)
    return ProducersSnapshot(end_offset, int(about.get(b"age_ms", oldest)), producers)


SNAPSHOT: Codec[ProducersSnapshot] = register(
    Codec("log: producers.snap", ProducersSnapshot, _encode, _decode)
)
