"""One buffer on a `FaultyFiles` disk, a producer and a reader, and what they were promised.

Rules of this file. The real `Buffer` in this process, called as Ray would call it. The judge
knows only what was answered: what was acknowledged, what was read. It never looks into the log.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.bounded_files import BoundedFiles, OpenBounds
from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import Appended, Fetched, LogEnds, QueueSpec, Refused
from pxrs_ray.errors import LogLost, NotFound, PxrsError
from pxrs_ray.log.identity import Identity
from pxrs_ray.supervision.passing_trouble import passes
from tests.faults.faulty_files import Ended, FaultyFiles
from tests.leases import let_serve
from tests.settings import log_limits

QUEUE, GROUP = "q", "g"
OTHER = "other"
PRODUCER = "named"
OURS = "the id of our topology"
PARTITIONS = 2
HEALS_WITHIN_S = 5.0
PAUSE_S = 0.004


@dataclass
class Lane:
    """What one partition's producer and readers were told."""

    epoch: int = 0
    sequence: int = 0
    sent: int = 0
    acked: dict[bytes, int] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    passed: int = 0
    surely: int = 0
    excused: set[bytes] = field(default_factory=set)


FILES_OPEN_MAX = OpenBounds(1, 2)


class Broken(AssertionError):
    """A promise was broken; says which."""


class World:
    """See the rules at the head of this file. `close` removes its folder."""

    def __init__(self, durability: Durability, seed: int, *, few_files: bool = False) -> None:
        self.few_files = few_files
        self.folder = Path(tempfile.mkdtemp(prefix="pxrs-faults-"))
        self.files = FaultyFiles()
        self.lanes = [Lane() for _ in range(PARTITIONS)]
        self.limits = log_limits(
            durability=durability,
            segment_bytes_max=1_200,
            tail_bytes_max=600,
            index_interval_bytes=300,
            fsync_interval_ms=2,
            retention_passed=True,
        )
        self._random = random.Random(seed)
        self.buffer: Buffer | None = None
        self.made = False  # what the coordinator notes once everybody has answered
        self.begun = 0

    @property
    def spec(self) -> QueueSpec:
        """The queue, as the coordinator would tell it."""
        return QueueSpec(QUEUE, PARTITIONS, self.limits, queue_id="walked")

    @property
    def alive(self) -> Buffer:
        """The buffer that runs."""
        assert self.buffer is not None
        return self.buffer

    # ---- lives

    async def start(self) -> None:
        """A process begins on what is there, and the coordinator opens the queue on it."""
        data = self.folder / "data"
        # So few files at once that each operation may close one, and open another.
        files = BoundedFiles(data / ".buffers/locks", FILES_OPEN_MAX, inner=self.files)
        self.buffer = Buffer("t", 0, 1, str(data), files if self.few_files else self.files)
        known = await self.insist(lambda: self.alive.belong(Identity(OURS), False))
        if known.topology_id != OURS:
            raise Broken(f"the logs are taken for {known.topology_id!r}'s")
        ends = {p: max(lane.passed, 0) for p, lane in enumerate(self.lanes)}
        for make in (False,) if self.made else (True, False):
            await self.insist(lambda m=make: self.alive.open(self.spec, ends, make=m))  # type: ignore[misc]
            self.made = True
        await self.insist(lambda: let_serve(self.alive))
        for partition in range(PARTITIONS):
            await self.insist(
                lambda p=partition: self.alive.passed(QUEUE, GROUP, {p: self.lanes[p].passed})
            )

    async def stop(self) -> None:
        """A clean end."""
        with suppress(PxrsError, OSError):
            await self.alive.close()
        self.buffer = None

    async def die(self, *, power: bool) -> None:
        """The process is gone without a word; with the power, what was not synced as well."""
        self.files.dead = True
        if self.buffer is not None:
            await self._abandon(self.buffer)
            self.buffer = None
        for fd, _ in self._open_files():
            os.close(fd)  # as the system does
        if power:
            self.files.cut_power(self.folder, self._random)
            self._excuse()
        self.files.begin_anew()

    async def _abandon(self, buffer: Buffer) -> None:
        for log in buffer._manager.all_logs():
            lane = self.lanes[log.partition]
            lane.surely = max(lane.surely, log.durable_offset)
        await buffer._tending.close()
        await buffer._writer._supervisor.close()
        buffer._writer._thread.shutdown()
        buffer._writer._sync_threads.shutdown()
        buffer._reader.close()
        buffer._manager.abandon()
        buffer._fence.close()

    def _open_files(self) -> list[tuple[int, str]]:
        found = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                target = str(link.readlink())
                if target.startswith(str(self.folder)):
                    found.append((int(link.name), target))
        return found

    def check_nothing_is_open(self) -> None:
        """Raise Broken when a descriptor was lost."""
        if self._open_files():
            raise Broken(f"left open: {[target for _, target in self._open_files()]}")

    def _excuse(self) -> None:
        """What an INTERVAL queue acknowledged and had not synced may be gone after a power cut."""
        if self.limits.durability is Durability.ALWAYS:
            return
        for lane in self.lanes:
            lane.excused |= {what for what, at in lane.acked.items() if at >= lane.surely}

    # ---- what is done

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call until it goes well, as callers do when trouble passes."""
        end = asyncio.get_running_loop().time() + HEALS_WITHIN_S
        while True:
            try:
                return await call()
            except (PxrsError, OSError) as error:
                if self.files.dead:
                    raise Ended from None
                if not (passes(error) or isinstance(error, (NotFound, LogLost))):
                    raise Broken(f"refused for good: {error!r}") from error
                if asyncio.get_running_loop().time() > end:
                    raise Broken(f"did not heal: {error!r}") from error
            await asyncio.sleep(PAUSE_S)

    async def send(self, partition: int, count: int) -> None:
        """Append so many more messages, one a frame, each until it is acknowledged."""
        lane = self.lanes[partition]
        while lane.sent < count:
            payload = b"%d/%d " % (partition, lane.sent) + b"x" * (lane.sent * 37 % 200)
            await self._append(partition, lane, payload)
            lane.sent += 1

    async def _append(self, partition: int, lane: Lane, payload: bytes) -> None:
        end = asyncio.get_running_loop().time() + HEALS_WITHIN_S
        while True:
            batch = Batch.of([b"k"], [payload], timestamp_ms=1)
            frame = batch.to_wire(bytes([partition]) * 16, lane.epoch, lane.sequence)
            try:
                (answer,) = await self.alive.append(QUEUE, [(partition, *frame)], 20)
            except (PxrsError, OSError) as error:
                answer = Refused(partition, error)  # type: ignore[arg-type]
            if isinstance(answer, Appended):
                assert answer.base_offset is not None
                before = lane.seen.get(answer.base_offset, payload)
                if before != payload:
                    raise Broken(f"offset {answer.base_offset} was {before!r}, is {payload!r}")
                lane.acked[payload] = answer.base_offset
                lane.seen[answer.base_offset] = payload
                lane.sequence += 1
                return
            if self.files.dead:
                raise Ended
            if answer.expected_sequence is not None and answer.expected_sequence < lane.sequence:
                # The log lost what it had acknowledged: judged at the end.
                lane.epoch, lane.sequence = lane.epoch + 1, 0
            elif not (passes(answer.error) or isinstance(answer.error, (NotFound, LogLost))):
                raise Broken(f"refused for good: {answer.error!r}")
            if asyncio.get_running_loop().time() > end:
                raise Broken(f"did not heal: {answer.error!r}")
            await asyncio.sleep(PAUSE_S)

    async def read(self, partition: int, start: int, *, wait_ms: int = 0) -> dict[int, bytes]:
        """Everything from `start` on, as a consumer finds it."""
        found: dict[int, bytes] = {}
        lane, at = self.lanes[partition], start
        end = asyncio.get_running_loop().time() + HEALS_WITHIN_S
        while True:
            answers = await self.alive.fetch(QUEUE, GROUP, {partition: (1, at)}, 400, wait_ms)
            if self.files.dead:
                raise Ended
            if not answers:
                return found
            (answer,) = answers
            if isinstance(answer, Refused):
                if answer.start_offset is not None and at < answer.start_offset:
                    at = answer.start_offset
                elif not passes(answer.error) or asyncio.get_running_loop().time() > end:
                    raise Broken(f"cannot be read at {at}: {answer.error!r}")
                await asyncio.sleep(PAUSE_S)
                continue
            assert isinstance(answer, Fetched)
            for batch in batches(answer, at):
                for message in batch:
                    if message.offset in found:
                        raise Broken(f"offset {message.offset} was read twice")
                    before = lane.seen.setdefault(message.offset, message.payload)
                    if before != message.payload:
                        raise Broken(
                            f"offset {message.offset} was {before!r}, is {message.payload!r}"
                        )
                    found[message.offset] = message.payload
            at = answer.next_offset

    async def consume(self, partition: int) -> None:
        """A group reads what there is, and has passed it."""
        lane = self.lanes[partition]
        await self.read(partition, lane.passed)
        # A checkpoint is written down elsewhere before the buffer hears of it.
        ends = await self.alive.ends(QUEUE)
        lane.passed = max(lane.passed, ends[partition].end_offset - 2)
        await self.insist(lambda: self.alive.passed(QUEUE, GROUP, {partition: lane.passed}))

    async def retain(self) -> None:
        """What the buffer does every five seconds."""
        for log in self.alive._manager.all_logs():
            with suppress(PxrsError, OSError):
                await self.alive._writer.do(lambda log=log: log.retain(2), (log,))
        if self.files.dead:
            raise Ended

    async def come_back(self) -> None:
        """A producer that has a name begins its next life."""
        number = self.begun + 1
        await self.insist(lambda: self.alive.begin_producer(QUEUE, PRODUCER, number, f"{number}"))
        self.begun = number

    async def lose_a_group(self) -> None:
        """A second group comes, and is removed."""
        await self.insist(lambda: self.alive.passed(QUEUE, OTHER, {0: 0, 1: 0}))
        await self.insist(lambda: self.alive.fence(QUEUE, OTHER, {0: 3}))
        await self.insist(lambda: self.alive.drop_group(QUEUE, OTHER))
        groups = [end.groups for end in (await self.alive.ends(QUEUE)).values()]
        if any(OTHER in found for found in groups):
            raise Broken(f"a group was removed, and is there: {groups}")

    async def lose_a_queue(self) -> None:
        """A second queue comes, takes a message, is removed, and comes again."""
        spec = replace(self.spec, queue=OTHER, partitions=1)
        # Of a life that ended in here: after a power cut it goes on above what it may have lost.
        await self.insist(lambda: self.alive.drop_queue(OTHER))
        for _ in range(2):
            for make in (True, False):
                await self.insist(lambda m=make: self.alive.open(spec, {}, make=m))  # type: ignore[misc]
            frame = Batch.of([b"k"], [b"x"], timestamp_ms=1).to_wire(b"o" * 16, 0, 0)
            answer = await self.insist(lambda frame=frame: self._append_other(frame))
            if answer.base_offset != 0:
                raise Broken(f"a queue made anew begins at {answer.base_offset}")
            await self.insist(lambda: self.alive.drop_queue(OTHER))
            if (self.folder / "data" / OTHER).exists():
                raise Broken("a queue was removed, and its folder is there")

    async def _append_other(self, frame: tuple[bytes, Any]) -> Appended:
        (answer,) = await self.alive.append(OTHER, [(0, *frame)], 20)
        if isinstance(answer, Refused):
            raise answer.error
        return answer

    # ---- what must hold

    async def judge(self) -> None:
        """Raise Broken unless everything that was promised is there, once, where it was."""
        newest = await self.insist(lambda: self.alive.begin_producer(QUEUE, PRODUCER, 0, ""))
        if self.begun and (newest is None or newest.number < self.begun):
            raise Broken(f"life {self.begun} of a producer was begun, known is {newest}")
        for partition, lane in enumerate(self.lanes):
            ends = await self._open_again(partition)
            if ends.start_offset > lane.passed:
                raise Broken(f"dropped up to {ends.start_offset}, passed is {lane.passed}")
            found = await self.read(partition, ends.start_offset)
            where: dict[bytes, int] = {}
            for offset, payload in found.items():
                if payload in where:
                    raise Broken(f"{payload[:8]!r} is at {where[payload]} and at {offset}")
                where[payload] = offset
            for payload, offset in lane.acked.items():
                if offset < ends.start_offset or payload in lane.excused:
                    continue
                if where.get(payload) != offset:
                    raise Broken(f"{payload[:8]!r} of {offset} is at {where.get(payload)}")

    async def _open_again(self, partition: int) -> LogEnds:
        """Where a partition stands, once what failed just now has healed."""
        end = asyncio.get_running_loop().time() + HEALS_WITHIN_S
        while True:
            ends = (await self.alive.ends(QUEUE))[partition]
            if ends.state == "open":
                return ends
            if asyncio.get_running_loop().time() > end:
                raise Broken(f"partition {partition} is {ends.state}: {ends.problem}")
            await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
