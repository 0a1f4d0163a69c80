"""kill -9 between and inside appends, and power cuts: what each durability promised is kept."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pxrs_ray.errors import SequenceGap
from pxrs_ray.log.partition_log import PartitionLog
from tests.log_victim import PRODUCER, WitnessFiles, limits, payloads
from tests.logs import contents, wire

KILLS = 70
KILLS_A_LOG = 5
DEADLINE_S = 30.0
ROOT = Path(__file__).parents[2]


class VictimMaker:
    """Starts victims and kills them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.log_victim"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, durability: str, delay_s: float, words: int = 1) -> None:
        """Let a victim live for `delay_s` from so many words of it on, then kill it. The first one
        says that it is there; how soon one of an append follows is the machine's affair."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        acks = folder / "acks"
        size = acks.stat().st_size if acks.exists() else 0
        process.stdin.write(json.dumps({"folder": str(folder), "durability": durability}) + "\n")
        process.stdin.flush()
        victim = int(process.stdout.readline())
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not (acks.exists() and acks.read_bytes()[size:].count(b"\n") >= words):
                assert not (folder / "died").exists(), (folder / "died").read_text()
                assert time.monotonic() < deadline, "the victim never began"
                time.sleep(0.001)
            time.sleep(delay_s)
        finally:  # it would append for ever
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            gone = process.stdout.readline()
        assert gone == "gone\n"
        assert not (folder / "died").exists(), (folder / "died").read_text()

    def close(self) -> None:
        """End the process that makes them."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE_S)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def victims() -> Iterator[VictimMaker]:
    maker = VictimMaker()
    yield maker
    maker.close()


def test_a_victim_that_is_given_up_is_killed_as_well(
    tmp_path: Path, victims: VictimMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tests.unit.test_log_kills.DEADLINE_S", -1)
        with pytest.raises(AssertionError, match="never began"):
            victims.run(tmp_path, "memory", 0)
    maker = victims._process.pid
    assert Path(f"/proc/{maker}/task/{maker}/children").read_text() == ""


def acknowledged(folder: Path) -> dict[int, int]:
    """Sequence to base offset of everything that was acknowledged so far."""
    lines = (folder / "acks").read_text().splitlines()
    return {int(s): int(b) for s, b in (line.split() for line in lines if line != "born")}


def reopened(folder: Path, durability: str, boot: str = "same") -> PartitionLog:
    return PartitionLog.open(
        folder / "log",
        "q",
        0,
        limits(durability),
        now_ms=1,
        files=WitnessFiles(folder / "synced"),
        boot=boot,
        lock_wait_ms=2_000,
    )


def sequences_of(log: PartitionLog) -> list[tuple[int, int]]:
    """(sequence, base offset) of every frame in the log, checked to be whole and in order."""
    found = contents(log, bytes_max=50_000)
    frames = []
    for base in sorted(found):
        sequence, part, _ = found[base].split(b"/", 2)
        if part == b"0":
            frames.append((int(sequence), base))
            expected = payloads(int(sequence))
            assert [found.get(base + i) for i in range(len(expected))] == expected
    assert len(found) == 3 * len(frames)
    return frames


def next_sequence(log: PartitionLog) -> int:
    return log.expected_sequence(wire([b""], 0, producer=PRODUCER)[0])


@pytest.mark.parametrize("durability", ["always", "interval"])
def test_nothing_acknowledged_is_lost_by_a_kill(
    tmp_path: Path, victims: VictimMaker, durability: str
) -> None:
    rng = random.Random(durability)
    told = 0
    for kill in range(KILLS):
        folder = tmp_path / str(kill // KILLS_A_LOG)
        folder.mkdir(exist_ok=True)
        victims.run(folder, durability, rng.random() * 0.03)
        acked = acknowledged(folder)
        log = reopened(folder, durability)
        frames = sequences_of(log)
        assert log.gaps == ()
        assert frames == [(i, 3 * i) for i in range(len(frames))], "a duplicate or a gap"
        assert acked.items() <= dict(frames).items(), f"kill {kill} lost an acknowledged append"
        untold = len(frames) - len(acked)
        assert untold <= kill % KILLS_A_LOG + 1, "more than one append a kill was not told"
        assert next_sequence(log) == len(frames)
        log.abandon()
        told += len(acked)
    assert told > KILLS, "the victims did nothing worth killing"


def test_a_memory_log_that_is_killed_gives_no_offset_out_twice(
    tmp_path: Path, victims: VictimMaker
) -> None:
    rng = random.Random(3)
    reached = 0
    for _ in range(KILLS):
        victims.run(tmp_path, "memory", rng.random() * 0.01)
        lines = (tmp_path / "acks").read_text().split("born\n")[-1].splitlines()
        offsets = [int(line.split()[1]) for line in lines]
        assert all(offset >= reached for offset in offsets), "an offset was given out twice"
        log = reopened(tmp_path, "memory")
        assert log.start_offset <= log.end_offset
        assert not offsets or log.end_offset > offsets[-1]
        ended = log.gaps[-1].end if log.gaps else 0  # none: killed before there was a log
        assert ended == log.end_offset
        assert log.state == "open"
        reached = log.end_offset
        log.abandon()


def cut_power(folder: Path, rng: random.Random) -> dict[Path, int]:
    """Leave of each file what was synced, and a random part of the rest; answer what was."""
    synced: dict[Path, int] = {}
    for line in (folder / "synced").read_text().splitlines():
        name, known = line.split("\t")
        synced[Path(name)] = max(int(known), synced.get(Path(name), 0))
    for path in (folder / "log").glob("*.seg"):
        kept = synced.get(path, 0)
        size = path.stat().st_size
        data = bytearray(path.read_bytes()[: rng.randint(kept, size)])
        if rng.random() < 0.5 and len(data) > kept:
            start = rng.randint(kept, len(data) - 1)
            data[start:] = bytes(len(data) - start)  # blocks that were allocated, not written
        path.write_bytes(data)
    for path in [*(folder / "log").glob("*.idx"), folder / "log" / "producers.snap"]:
        if path.exists() and rng.random() < 0.5:
            path.write_bytes(b"")  # replaced without a sync
    return synced


@pytest.mark.parametrize("durability", ["always", "interval"])
def test_a_power_cut_takes_only_what_was_not_synced(
    tmp_path: Path, victims: VictimMaker, durability: str
) -> None:
    rng = random.Random(f"power {durability}")
    for cut in range(25):
        folder = tmp_path / str(cut)
        folder.mkdir()
        victims.run(folder, durability, 0.005 + rng.random() * 0.06, words=2)
        acked = acknowledged(folder)
        before = reopened(folder, durability)
        whole = sequences_of(before)
        before.abandon()
        assert whole, "what was acknowledged is not there after a kill"
        synced = cut_power(folder, rng)
        log = reopened(folder, durability, boot="another")
        durable = log.end_offset
        if durability == "always":
            assert log.state == "open", log.ends()
        else:
            assert log.state == "waiting"
            log.confirm(0, 1)
            assert log.end_offset > whole[-1][1] + 3, "an offset could be given out twice"
            assert log.gaps[-1].first == durable
            assert log.state == "open", "an unsynced tail was never promised"
        frames = sequences_of(log)
        assert frames == whole[: len(frames)], "not the beginning of what was there"
        if durability == "always":
            assert acked.items() <= dict(frames).items()
        assert sum(map(_size, (folder / "log").glob("*.seg"))) >= sum(
            size for path, size in synced.items() if path.suffix == ".seg" and path.exists()
        )
        with pytest.raises(SequenceGap):
            log.append(*wire([b"x"], len(frames) + 1, producer=PRODUCER), 1)
        again = log.append(*wire(payloads(len(frames)), len(frames), producer=PRODUCER), 1)
        assert not again.repeated and again.base_offset is not None
        assert again.base_offset >= durable
        log.close()


def _size(path: Path) -> int:
    return path.stat().st_size
