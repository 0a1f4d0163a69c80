"""`DelayMover`: the handler of the group that moves a queue's delayed messages on.

Rules of this file. A group '<queue>.delayed' like any other reads the tiers of the delays, each in
order: its consumer is replaced, its partitions move, its checkpoints are fenced as all others are.
What is moved when, and how it is appended once, a `DelayMoves` says for each tier. A call that
still has messages that wait says how long (`NotDue`) and comes again.
"""

from __future__ import annotations

import threading

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.clock import wall_ms
from pxrs_ray.consumer.dead_letter import letter_partition
from pxrs_ray.consumer.delivery import Context, DeliveredBatch
from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.delay import DELAYED_SUFFIX, place_of
from pxrs_ray.data.frame import pack_header, producer_id, unpack_header
from pxrs_ray.data.protocol import Fetched, Refused
from pxrs_ray.errors import BufferAway, NotHeld, ProducerFenced, SequenceGap
from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.processing.delay_moves import AppendMoved, DelayMoves, DelayTarget, NotDue, ReadMoved

# Not for long: whoever waits must hear soon that it shall stop, and tries again by itself.
TRY_FOR_S = 5.0
READ_WAIT_MS = 1_000
# What waits is looked at so often at most, and so often at least: the wall clock may be set.
PAUSE_S_MIN, PAUSE_S_MAX = 0.005, 10.0


class DelayMover:
    """Moves the delayed messages of `queue`; see the rules at the head of this file."""

    def __init__(self, topology: str, queue: str) -> None:
        self._topology, self._queue = topology, queue
        self._lock = threading.Lock()
        self._moves: dict[PartitionId, tuple[int, DelayMoves]] = {}
        self._logs: BlockingBufferClient | None = None
        self._full_name = self._tiers = ""
        self._spread: PartitioningSpec

    def handle_batch(self, batch: DeliveredBatch) -> None:
        """Move what has waited long enough. Raises NotDue for the rest."""
        context = batch.context
        logs, moves = self._open(), self._moves_of(context)
        now_ms = wall_ms()
        messages = [
            Message(m.partition, m.offset, m.key, m.payload, m.timestamp_ms, m.headers, m.id)
            for m in batch
        ]
        until_ms = moves.take(messages, now_ms)
        while (step := moves.next()) is not None:
            if isinstance(step, ReadMoved):
                moves.read(step, self._last_moved(logs, step, context))
            else:
                self._append(logs, step, moves, context)
        if until_ms is not None:
            wait_s = (until_ms - wall_ms()) / 1_000
            raise NotDue(min(max(wait_s, PAUSE_S_MIN), PAUSE_S_MAX))

    def _open(self) -> BlockingBufferClient:
        from pxrs_ray.actors.client.topology import attach

        with self._lock:
            if self._logs is None:
                spec, config, buffers = attach(self._topology).queue_spec(self._queue)
                self._spread = config.resolved_queue(self._queue).spread()
                self._full_name = spec.queue
                self._tiers = config.full_name(self._queue + DELAYED_SUFFIX)
                self._logs = BlockingBufferClient(self._topology, buffers, TRY_FOR_S)
            return self._logs

    def _moves_of(self, context: Context) -> DelayMoves:
        epoch, moves = self._moves.get(context.partition, (-1, None))
        if moves is None or epoch != context.epoch:
            moves = DelayMoves(context.partition, context.epoch, self._partition_of)
            self._moves[context.partition] = context.epoch, moves
        return moves

    def _partition_of(self, message: Message) -> PartitionId:
        return letter_partition(self._spread, message)

    def _queue_of(self, target: DelayTarget) -> str:
        return self._tiers if target.is_tier else self._full_name

    def _append(
        self, logs: BlockingBufferClient, step: AppendMoved, moves: DelayMoves, context: Context
    ) -> None:
        batch = Batch.of(
            [moved.message.key for moved in step.messages],
            [moved.message.payload for moved in step.messages],
            timestamp_ms=0,
            timestamps_ms=[moved.timestamp_ms for moved in step.messages],
            headers=[moved.headers for moved in step.messages],
            ids=[moved.message.id for moved in step.messages],
        )
        identity = producer_id(f"delays {context.topology_id}/{context.queue}/{context.partition}")
        header, body = batch.to_wire(identity, context.epoch, step.sequence)
        packed = pack_header(unpack_header(header)._replace(follows=step.follows))
        target = step.target
        if not context.holds():
            raise NotHeld("the lease ended before these were moved")
        answer = logs.offer(self._queue_of(target), (target.partition, packed, body))
        if not isinstance(answer, Refused):
            moves.appended(step)
        elif isinstance(answer.error, SequenceGap):
            moves.refused(step, answer.heard)
        elif isinstance(answer.error, ProducerFenced):
            raise NotHeld(f"another owner moves these: {answer.error}") from answer.error
        else:
            raise answer.error

    def _last_moved(
        self, logs: BlockingBufferClient, step: ReadMoved, context: Context
    ) -> Offset | None:
        """From which offset the last message of that frame came; None: it was dropped since."""
        queue, partition = self._queue_of(step.target), step.target.partition
        found = logs.fetch(queue, "?tool", partition, step.base_offset, wait_ms=READ_WAIT_MS)
        if isinstance(found, Refused):
            return None
        if not isinstance(found, Fetched) or not (read := batches(found, step.base_offset)):
            raise BufferAway(f"{queue} P{partition} cannot be read at {step.base_offset} yet")
        place = place_of(list(read[0])[-1])
        return place[1] if place is not None and place[0] == context.partition else None
