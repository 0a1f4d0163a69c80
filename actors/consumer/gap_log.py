"""`GapLog`, `GapKeeper`: one partition's gap map, as far as the partition's row has no room for it.

Rules of this file. What is written when, and what a row names, the scheduler says (`GapMap`). Here
it is carried, by threads that may wait: a record goes to the log of the same number of the group's
queue of gaps, under a producer identity that belongs to (group, partition) and under the epoch of
the ownership. So the log itself refuses an owner whose time is over. What the row names is read
before a message is offered; what cannot be read in time comes again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from pxrs_ray.actors.buffer.partition_client import PartitionClient
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import producer_id
from pxrs_ray.errors import NotFound
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.processing.done_ranges import NamedGaps
from pxrs_ray.processing.gap_map import GapRecord
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.numbered_appends import NumberedAppends
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.supervision.restart_rules import told

logger = logging.getLogger(__name__)

# Not for long: whoever waits must hear soon that it shall stop, and tries again by itself.
TRY_FOR_S = 2.0
AGAIN_S = 0.5
# Longer than a buffer is away; then what it holds is done again rather than nothing at all.
READ_FOR_S = 60.0
# How long the last record of an ownership is tried.
LAST_TRIES_S = 5.0


class GapLog:
    """The log of one partition's gaps, as its owner under one epoch. Not thread-safe."""

    def __init__(self, spec: GroupSpec, partition: PartitionId, epoch: Epoch) -> None:
        self.epoch = epoch
        self._log = PartitionClient(
            spec.topology, spec.buffers, spec.gaps, partition, try_for_s=TRY_FOR_S
        )
        self._producer = producer_id(f"gaps {spec.topology}/{spec.group}/{partition}")
        self._appends: NumberedAppends[Batch] = NumberedAppends()

    def append(self, record: GapRecord) -> Offset | None:
        """Append a record behind what was not answered yet; answers where it is.
        Raises what the log refuses with; a record that may be there is sent again before others,
        and one that was never sent is as good as this one is: it gives way."""
        texts = list(record.texts)
        self._appends.replace(Batch.of([None] * len(texts), texts, timestamp_ms=wall_ms()))
        return self._appends.send(
            lambda batch, number: self._log.append(batch, self._producer, self.epoch, number)
        )

    def texts(self, named: NamedGaps) -> list[bytes]:
        """What of the records that a row names is there."""
        found: list[bytes] = []
        for batch in self._log.read(named.base):
            for message in batch:
                if message.offset >= named.end:
                    return found
                found.append(message.payload)
        return found


class OwnGapLogs:
    """The gap logs of the partitions that one consumer owns: one object for each epoch, for a log
    numbers its records within an epoch."""

    def __init__(self) -> None:
        self._logs: dict[PartitionId, GapLog] = {}

    def of(self, spec: GroupSpec, partition: PartitionId, epoch: Epoch) -> GapLog:
        """As the owner of the partition under `epoch`."""
        found = self._logs.get(partition)
        if found is None or found.epoch != epoch:
            found = self._logs[partition] = GapLog(spec, partition, epoch)
        return found


class GapKeeper:
    """Carries records between a partition's scheduler and its gap log.

    `wake` guards the scheduler. `submit` has a thread do something, and `turn` is called with
    `wake` held when more may begin.
    """

    def __init__(
        self,
        log: GapLog,
        place: str,
        wake: threading.Condition,
        stopping: threading.Event,
        submit: Callable[[Callable[[], None]], object],
        turn: Callable[[], None],
    ) -> None:
        self._log, self._place, self._wake, self._stopping = log, place, wake, stopping
        self._submit, self._turn = submit, turn
        # Whether a thread is at it.
        self.is_busy = False

    def load(self, lanes: KeyLanes) -> None:
        """Read what the row names, before anything is offered."""
        named, began_s = lanes.named_gaps, monotonic()
        if named is None:
            return
        texts: list[bytes] = []
        while not self._stopping.is_set():
            try:
                texts = self._log.texts(named)
                break
            except Exception as error:  # noqa: BLE001 - whatever it is: it is only what comes again
                lasts = isinstance(error, NotFound) or not passes(error)
                if lasts or monotonic() - began_s > READ_FOR_S:
                    logger.error("%s: its gap log cannot be read: %s", self._place, told(error))
                    break
                logger.warning("%s: its gap log cannot be read yet: %s", self._place, told(error))
                self._stopping.wait(AGAIN_S)
        with self._wake:
            used = lanes.restore_gaps(texts)
        wanted = named.end - named.base
        if used < wanted and not self._stopping.is_set():
            logger.warning(
                "%s: %d of %d records of its gap log are lost: what they told of as done comes "
                "again",
                self._place,
                wanted - used,
                wanted,
            )

    def look(self, lanes: KeyLanes) -> None:
        """With `wake` held: have written down what is to be written down."""
        if self.is_busy or self._stopping.is_set():
            return
        record = lanes.gap_record(self._log.epoch)
        if record is not None:
            self.is_busy = True
            self._submit(lambda: self._keep(lanes, record))

    def _keep(self, lanes: KeyLanes, record: GapRecord) -> None:
        base = None
        try:
            base = self._append(record)
        finally:
            with self._wake:
                lanes.gaps_kept(record, base)
                self.is_busy = False
                self._turn()
                self._wake.notify_all()

    def _append(self, record: GapRecord) -> Offset | None:
        try:
            return self._log.append(record)
        except Exception as error:  # noqa: BLE001 - the row has room for less, and that is all
            if not self._stopping.is_set():
                logger.warning("%s: its gap log takes nothing: %s", self._place, told(error))
                self._stopping.wait(AGAIN_S)
            return None

    def finish(self, lanes: KeyLanes) -> None:
        """All calls have ended: what the row has no room for is written down, if it can be."""
        until_s = monotonic() + LAST_TRIES_S
        while True:
            with self._wake:
                record = lanes.gap_record(self._log.epoch) if lanes.is_behind else None
            if record is None:
                return
            base = self._append(record)
            with self._wake:
                lanes.gaps_kept(record, base)
            if base is None and monotonic() > until_s:
                logger.warning("%s: not all that is done is written down", self._place)
                return
