"""`SourceFetcher`: reads an external queue for one member, as `Fetcher` reads our own logs.

Rules of this file. The source is read from the lowest position of any partition that has room. Each
message is offered to the virtual partition that its key hashes to, if we hold it and the message is
not behind that partition's position; messages of other members are skipped. Blocking reads are made
on a thread of their own. A source that fails is opened anew, with growing pauses. Nothing is read,
nor handed on, when the lease is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.actors.consumer.member_callbacks import MemberCallbacks
from pxrs_ray.backoff import Backoff
from pxrs_ray.consumer.member_effects import MemberLane
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.sources.open_source import SourceSpec, open_source
from pxrs_ray.sources.soundness import runs, sound
from pxrs_ray.sources.source import Source, SourceRecord
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import off_loop

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.group_member import GroupMember

logger = logging.getLogger(__name__)

RECORDS_MAX = 1_000
WAIT_MS = 200
RETRY_FIRST_S = 0.1
RETRY_MOST_S = 5.0


class SourceFetcher:
    """The one fetch loop of a `GroupMember` whose queue is external."""

    def __init__(self, runtime: GroupMember, hooks: MemberCallbacks, spec: SourceSpec) -> None:
        self.problem = ""
        self._runtime, self._hooks, self._spec = runtime, hooks, spec
        self._partitioner = spec.spread.partitioner()

    def forget(self, index: int) -> None:
        """There is no buffer here."""

    async def loop(self, index: int) -> None:
        """Read for as long as the member lives; there is one loop."""
        source: Source | None = None
        lease, woken = self._runtime.lease, self._runtime.wake_of(MemberLane.FETCH + index)
        backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        thread = ThreadPoolExecutor(1, "pxrs-source")
        run = partial(off_loop, threads=thread)
        try:
            while not self._runtime.ended.is_set():
                woken.clear()
                positions = self._positions()
                if not positions or lease.is_over():
                    await woken.wait()
                    continue
                lowest = min(offset for _, offset in positions.values())
                try:
                    if source is None:
                        source = await run(open_source, self._spec.address)
                    records = await run(source.read, lowest, RECORDS_MAX, WAIT_MS)
                    records = [sound(record) for record in records]
                except Exception as error:  # noqa: BLE001 - a source is anybody's code
                    self.problem = f"source: {told(error)}"
                    logger.warning("source of %s: %s", self._runtime.name, told(error))
                    if source is not None:
                        thread.submit(source.close)
                        source = None
                    await asyncio.sleep(backoff.failed())
                    continue
                backoff.worked()
                self.problem = ""
                if records and not lease.is_over():
                    self._offer(records, positions)
                    self._runtime.carry_out()
        finally:
            if source is not None:
                thread.submit(source.close)
            thread.shutdown(wait=False)

    def _positions(self) -> dict[PartitionId, tuple[Epoch, Offset]]:
        most = 2 * self._runtime.spec.config.pull_bytes_max
        return self._runtime.session.to_fetch(most)

    def _offer(
        self,
        records: Sequence[SourceRecord],
        positions: dict[PartitionId, tuple[Epoch, Offset]],
    ) -> None:
        split: dict[PartitionId, list[SourceRecord]] = {}
        for record in records:
            # Without a key it is the offset that decides: every reader must decide the same.
            key = b"%d" % record.offset if record.key is None else record.key
            split.setdefault(self._partitioner.partition(key), []).append(record)
        end = records[-1].offset + 1
        for partition, (epoch, offset) in positions.items():
            at = offset
            mine = [record for record in split.get(partition, ()) if record.offset >= offset]
            for run in runs(mine):
                at = self._pass(partition, epoch, at, run[0].offset)
                batch = _batch(partition, run)
                size_bytes = sum(len(record.payload) for record in run)
                session = self._runtime.session
                if not session.fetched(partition, epoch, at, len(run)):
                    break
                self._hooks.received(partition, epoch, batch, size_bytes)
                at = batch.end_offset
            else:
                self._pass(partition, epoch, at, end)

    def _pass(self, partition: PartitionId, epoch: Epoch, at: Offset, to: Offset) -> Offset:
        """Go on at `to`: what lies between belongs to other partitions, or to nobody."""
        if to > at and self._runtime.session.skip(partition, epoch, at, to):
            self._hooks.skipped(partition, epoch, to)
        return max(at, to)


def _batch(partition: PartitionId, records: Sequence[SourceRecord]) -> Batch:
    batch = Batch.of(
        [record.key for record in records],
        [record.payload for record in records],
        timestamp_ms=0,
        timestamps_ms=[record.timestamp_ms for record in records],
        headers=[record.headers for record in records],
    )
    return Batch(partition, records[0].offset, batch.flags, batch.columns, 0)
