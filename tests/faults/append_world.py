"""A world of appends: real senders and real logs, and a fault at any one call between them.

Rules of this file. Time is a number, and every event has its place in it: the same fault gives
the same run. A buffer's process dies without a word, and its logs are opened anew from what is on
disk; a power cut also takes back what was not synced. What is judged is what a user sees: what
receipts say, and what is in the logs.
"""

from __future__ import annotations

import heapq
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.data.protocol import Appended, OutFrame, Refused
from pxrs_ray.errors import BufferAway, PartitionFull, PxrsError, UsageError
from pxrs_ray.files import Files
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import ProducerFence, named_producer_id
from pxrs_ray.log.refusals import append_frame
from pxrs_ray.producer.sender import Call, Sender
from tests.logs import contents
from tests.settings import log_limits, sender_limits

PARTITIONS = 2
BUFFERS = 2
WAY_MS = 2
TIMEOUT_MS = 100
RESTART_MS = 20
END_MS = 5_000
POISON = b"poison"
SENDER = sender_limits(
    inflight_appends_max=3, call_frames_max=3, call_bytes_min=1, append_timeout_ms=TIMEOUT_MS
)

# What becomes of one call; `AFTER_MS` says how late it is, where it is late.
FAULTS = (
    "lost",
    "unanswered",
    "silent",
    "done and silent",
    "answered late",
    "done late",
    "doubled",
    "doubled late",
    "doubled after all",
    "buffer killed before",
    "buffer killed after",
    "power cut before",
    "power cut after",
)
AFTER_MS = {"answered late": 60, "done late": 60, "doubled late": 60, "doubled after all": 400}


class SyncedFiles(Files):
    """Files that know what a power cut would leave of them; nothing is really synced."""

    def __init__(self) -> None:
        self.sizes: dict[Path, int] = {}
        self.contents: dict[Path, bytes] = {}

    def sync(self, fd: int) -> None:
        self.sizes[Path(f"/proc/self/fd/{fd}").readlink()] = os.fstat(fd).st_size

    def sync_folder(self, folder: Path) -> None:
        """Names stay."""

    def replace(self, path: Path, data: bytes, *, sync: bool) -> None:
        if not sync and path.exists():
            self.contents.setdefault(path, path.read_bytes())
        elif sync:
            self.contents.pop(path, None)
        super().replace(path, data, sync=False)

    def cut_power(self, folder: Path) -> None:
        """Take back what was not synced."""
        for path, size in self.sizes.items():
            if path.is_relative_to(folder) and path.exists():
                os.truncate(path, min(size, path.stat().st_size))
        for path in folder.rglob("*.seg"):
            if path not in self.sizes:
                os.truncate(path, 0)
        for path, data in self.contents.items():
            if path.is_relative_to(folder):
                path.write_bytes(data)


@dataclass(frozen=True)
class Fault:
    """What happens to the call of this number, counted from 0 in the order they are made."""

    call: int
    kind: str


class BufferProcess:
    """A buffer's logs, as one process has them."""

    def __init__(self, folder: Path, index: int, limits: LogLimits) -> None:
        self.folder, self.index, self.limits = folder, index, limits
        self.files = SyncedFiles()
        self.logs: dict[int, PartitionLog] = {}
        self.alive = False
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.alive, self.lives = True, self.lives + 1
        self.producers = ProducerFence(self.folder, self.files)
        for partition in range(self.index, PARTITIONS, BUFFERS):
            log = PartitionLog.open(
                self.folder / str(partition),
                "q",
                partition,
                self.limits,
                now_ms=1,
                files=self.files,
                boot="same",
                lock_wait_ms=0,
            )
            if log.state == "waiting":
                log.confirm(0, 1)
            self.logs[partition] = log

    def end(self, *, power: bool = False, clean: bool = False) -> None:
        self.alive = False
        for log in self.logs.values():
            if clean:
                log.close()
            else:
                log.abandon()
        if power:
            self.files.cut_power(self.folder)

    def append(self, frames: list[OutFrame], full: set[int]) -> list[Appended | Refused]:
        answers: list[Appended | Refused] = []
        for partition, header, body in frames:
            if partition in full:
                answers.append(Refused(partition, PartitionFull("no room")))
            elif POISON in bytes(body):
                answers.append(Refused(partition, UsageError("never")))
            else:
                log = self.logs[partition]
                answers.append(append_frame(log, self.producers, 1, partition, header, body))
                if self.limits.durability is Durability.ALWAYS:
                    log.sync()
        return answers


class Life:
    """One life of a producer: an sender, and what its receipts say."""

    def __init__(self, world: World, identity: bytes) -> None:
        self.world, self.identity = world, identity
        self.sender = Sender(BUFFERS, SENDER)
        self.told: dict[int, Appended | PxrsError] = {}
        self.sent: dict[int, tuple[int, bytes]] = {}

    def send(self, partition: int, number: int, payload: bytes = b"") -> None:
        payload = b"%06d %s" % (number, payload)
        batch = Batch.of([b"k"], [payload], timestamp_ms=1)
        header, body = batch.to_wire(self.identity, *self.sender.numbers(partition))
        self.sent[number] = (partition, payload)
        self.sender.add(partition, header, body.to_pybytes(), self, number, self.world.now_ms)
        self.look()

    def settle(self, index: int, answer: Appended | PxrsError) -> None:
        if index in self.told:
            self.world.wrong.append(f"message {index} was told twice")
        self.told[index] = answer

    def look(self) -> None:
        self.sender.expire(self.world.now_ms)
        for call in list(self.sender.calls(self.world.now_ms)):
            self.world.carry(self, call)
        soon = self.sender.next_look_ms()
        if soon is not None:
            self.world.at(max(soon, self.world.now_ms + 1), self.look)

    def answered(self, call: Call, answers: list[Appended | Refused]) -> None:
        self.sender.answered(call, answers, self.world.now_ms)
        self.look()

    def failed(self, call: Call) -> None:
        self.sender.failed(call, BufferAway("no answer"), self.world.now_ms)
        self.look()


class World:
    """Buffers, lives of producers, and what goes between them."""

    def __init__(self, folder: Path, fault: Fault | None, durability: Durability) -> None:
        limits = log_limits(durability=durability, segment_bytes_max=20_000)
        self.buffers = [BufferProcess(folder / str(i), i, limits) for i in range(BUFFERS)]
        self.fault = fault
        self.now_ms = 0
        self.calls = 0
        self.put = False
        self.full: set[int] = set()
        self.frozen: dict[int, int] = {}
        self.lives: list[Life] = []
        self.wrong: list[str] = []
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._order = count()

    def at(self, when_ms: int, what: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when_ms, next(self._order), what))

    def begin_life(self, generation: int) -> None:
        """A producer of the one name begins anew; every buffer knows it before it sends."""
        for buffer in self.buffers:
            assert buffer.alive, "a life begins when every buffer answers"
            buffer.producers.begin("q", "p", generation, str(generation))
        self.lives.append(Life(self, named_producer_id("p", generation)))

    def carry(self, life: Life, call: Call) -> None:
        kind = ""
        if self.fault is not None and self.calls == self.fault.call:
            kind, self.put = self.fault.kind, True
        self.calls += 1
        frames = call.arguments()
        late_ms = AFTER_MS.get(kind, 0)
        comes_ms = self.now_ms + WAY_MS + (late_ms if kind == "done late" else 0)
        comes_ms = max(comes_ms, self.frozen.get(call.buffer, 0))
        born = self.buffers[call.buffer].lives
        if kind.startswith("doubled"):
            for again in {comes_ms + 1, comes_ms + 1 + late_ms}:
                self.at(again, lambda: self._do(call, frames))
        self.at(comes_ms, lambda: self._arrive(life, call, frames, kind, born))

    def _do(self, call: Call, frames: list[OutFrame]) -> list[Appended | Refused] | None:
        buffer = self.buffers[call.buffer]
        return buffer.append(frames, self.full) if buffer.alive else None

    def _arrive(self, life: Life, call: Call, frames: list[OutFrame], kind: str, born: int) -> None:
        buffer = self.buffers[call.buffer]
        ends = kind.startswith(("buffer killed", "power cut"))
        if ends and kind.endswith("before"):
            self.end_buffer(call.buffer, power=kind.startswith("power"))
        gone = not buffer.alive or buffer.lives != born or kind == "lost"
        answers = None if gone or kind == "silent" else self._do(call, frames)
        if ends and kind.endswith("after"):
            self.end_buffer(call.buffer, power=kind.startswith("power"))
        if kind in ("silent", "done and silent"):
            return
        back_ms = self.now_ms + WAY_MS + (AFTER_MS[kind] if kind == "answered late" else 0)
        if answers is None or ends or kind == "unanswered":
            self.at(back_ms, lambda: life.failed(call))
        else:
            self.at(back_ms, lambda: life.answered(call, answers))

    def end_buffer(self, index: int, *, power: bool = False, clean: bool = False) -> None:
        buffer = self.buffers[index]
        if buffer.alive:
            buffer.end(power=power, clean=clean)
            self.at(self.now_ms + RESTART_MS, buffer.begin)

    def run(self) -> None:
        while self._events and self.now_ms < END_MS:
            self.now_ms, _, what = heapq.heappop(self._events)
            what()

    def close(self) -> None:
        for buffer in self.buffers:
            if buffer.alive:
                buffer.end()
            with suppress(OSError):
                shutil.rmtree(buffer.folder)

    def judge(self) -> list[str]:
        """Every promise that is broken."""
        wrong = list(self.wrong)
        if not all(buffer.alive for buffer in self.buffers):
            return [*wrong, "a buffer did not come back"]
        kept = {
            partition: contents(log)
            for buffer in self.buffers
            for partition, log in buffer.logs.items()
        }
        for partition, found in kept.items():
            numbers = [int(payload[:6]) for _, payload in sorted(found.items())]
            if len(set(numbers)) < len(numbers):
                wrong.append(f"partition {partition}: twice in the log: {numbers}")
            firsts = list(dict.fromkeys(numbers))
            if firsts != sorted(firsts):
                wrong.append(f"partition {partition}: out of order: {numbers}")
        for life in self.lives:
            wrong += self._judge_receipts(life, kept)
        return wrong

    def _judge_receipts(self, life: Life, kept: dict[int, dict[int, bytes]]) -> list[str]:
        wrong = []
        if life.sender.pending_frames or life.sender.pending_bytes:
            wrong.append(f"{life.sender.pending_frames} frames are under way for ever")
        for number, (partition, payload) in life.sent.items():
            told: Any = life.told.get(number)
            if told is None:
                wrong.append(f"message {number} was never told anything")
            elif isinstance(told, Appended):
                there = kept[partition]
                if payload not in there.values():
                    wrong.append(f"message {number} was acknowledged and is lost")
                elif told.base_offset is not None and there.get(told.base_offset) != payload:
                    wrong.append(f"message {number} is not at {told.base_offset}, as it was told")
        return wrong
