"""Doors of the log: its files, its frames, and what a producer puts into them."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import frames_in, unpack_header
from pxrs_ray.errors import LogCorrupted, LogLost, PxrsError
from pxrs_ray.log.inspect import summarise, verify
from tests.fuzz.knocking import Give
from tests.logs import SMALL, contents, open_log, put


@contextmanager
def log_folder() -> Iterator[Give]:
    """A log into one of whose files the bytes are put."""
    with tempfile.TemporaryDirectory(prefix="pxrs-fuzz-") as folder:
        made = Path(folder) / "made"
        log = open_log(made, SMALL)
        for sequence in range(40):
            put(log, sequence, [b"%d:%d" % (sequence, i) * 20 for i in range(2)])
        whole = contents(log)
        log.close()
        before = {path.name: path.read_bytes() for path in made.iterdir()}

        def give(data: bytes) -> None:
            for path in made.iterdir():
                path.unlink()
            for name, found in before.items():
                (made / name).write_bytes(found)
            rng = random.Random(data)
            for _ in range(rng.randint(1, 2)):
                victim = made / rng.choice(sorted(before))
                old = before[victim.name]
                at = rng.randrange(len(old) + 1)
                over = rng.choice([0, len(data)])
                victim.write_bytes(rng.choice([data, old[:at] + data + old[at + over :]]))
            _read_as_people_do(made)
            try:
                log = open_log(made, SMALL)
            except LogCorrupted as refused:
                assert str(made) in str(refused)
                return
            try:
                assert contents(log).items() <= whole.items()
            except (LogCorrupted, LogLost):
                pass
            finally:
                log.abandon()

        yield give


def sample_body() -> bytes:
    batch = Batch.of(
        [b"k", None], [b"x", b"y"], timestamp_ms=1, timestamps_ms=[1, 2],
        headers=[{"h": b"1"}, None], ids=["a", None],
    )  # fmt: skip
    return bytes(batch.to_wire(b"p" * 16, 0, 0)[1])


def sample_frame() -> bytes:
    header, found = Batch.of([b"k"], [b"x"], timestamp_ms=1).to_wire(b"p" * 16, 0, 0)
    return bytes(header) + bytes(found)


def _read_as_people_do(folder: Path) -> None:
    for look in (summarise, verify):
        try:
            look(folder)  # type: ignore[operator]
        except PxrsError as refused:
            assert str(refused)


def frame(data: bytes) -> None:
    unpack_header(data)
    list(frames_in(data))


def body(data: bytes) -> None:
    """A frame that is whole by its checksums, whatever its body is: any producer can send it."""
    from xxhash import xxh3_64_intdigest

    from pxrs_ray.data.frame import FrameHeader, pack_header

    padded = data + bytes(-len(data) % 8)
    header = FrameHeader(
        2, 7, 0, b"p" * 16, 0, 0, 0, 0, len(padded), xxh3_64_intdigest(padded), None
    )
    batch = Batch.from_wire(0, pack_header(header), padded)
    for message in batch:
        assert message.payload is not None
