"""`GroupDeadLetters`: an operator's handle on the messages that a group has given up.

    letters = topology.group("billing").dead_letters
    for letter in letters.list(): ...
    letters.retry(key="account-7")        # to the end of their queue, in order, with their headers
    letters.drop(places=[(3, 17)])

Rules of this file. A letter is sent again under an identity of its own, so that its log takes it
once, whoever repeats the call. It is noted as settled afterwards. So what is cut off in between
loses nothing, and sends nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice

from pxrs_ray.actors.buffer.partition_client import PartitionClient
from pxrs_ray.actors.client.group_quarantine import key_of, key_text
from pxrs_ray.actors.client.queue_reader import QueueReader
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.consumer.member_requests import GetGroupSpec
from pxrs_ray.clock import wall_ms
from pxrs_ray.consumer.dead_letter import Letter, letter_from
from pxrs_ray.consumer.settled_letters import SettledLetters
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import producer_id
from pxrs_ray.errors import NotFound, SequenceConflict, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.status.answers import Shown
from pxrs_ray.status.rendering import Table, View
from pxrs_ray.status.units import clock_text

LetterPlace = tuple[PartitionId, Offset]

SETTLED_KEPT_EVERY = 500
RETRIED = "pxrs-retried"


@dataclass(frozen=True, slots=True)
class _LetterQueue:
    """A dead-letter queue, the id that it was made with, and whose letters are looked for."""

    name: str
    queue_id: str
    group: str

    @property
    def document(self) -> str:
        """Under which name the topology keeps what is settled."""
        return f"dead-letters/{self.name}"


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which letters somebody means: of one key, at these places, or every one."""

    key: bytes | None
    places: set[LetterPlace]
    every: bool

    def __post_init__(self) -> None:
        if (self.key is not None) + bool(self.places) + self.every != 1:
            raise UsageError("choose letters by their key, by their places, or every one")

    def takes(self, letter: Letter) -> bool:
        """Whether this letter is one of them."""
        if self.key is not None:
            return letter.message.key == self.key
        return self.every or (letter.partition, letter.offset) in self.places


class DeadLetterList(Shown, tuple[Letter, ...]):
    """Dead letters; prints as a table."""

    def view(self) -> View:
        """Each letter: where it lies, what failed, where it came from."""
        rows = [
            (
                f"P{letter.partition}@{letter.offset}",
                clock_text(letter.at_ms),
                key_text(letter.message.key),
                f"{letter.queue} P{letter.failed_partition}@{letter.failed_offset}",
                letter.attempts,
                letter.error,
            )
            for letter in self
        ]
        return View([Table(("letter", "since", "key", "of", "attempts", "error"), rows)])


class GroupDeadLetters:
    """See the head of this file. Holds no state."""

    def __init__(self, topology: str, group: str) -> None:
        self._topology, self._group = Topology(topology), group
        self._coordinator = BlockingCoordinatorClient(topology)

    def list(
        self,
        *,
        key: bytes | str | None = None,
        places: Collection[LetterPlace] = (),
        limit: int | None = None,
    ) -> DeadLetterList:
        """The letters that nobody has dealt with yet, in order for each partition.

        With `key` those of one key, with `places` those; with `limit` the first so many.
        """
        every = key is None and not places
        choice, queue = _Choice(key_of(key), set(places), every), self._queue()
        found = self._waiting(queue, self._settled(queue))
        return DeadLetterList(islice(filter(choice.takes, found), limit))

    def at(self, place: LetterPlace) -> Letter | None:
        """The letter at a place (its partition and offset among the letters), if it waits."""
        choice, queue = _Choice(None, {place}, every=False), self._queue()
        found = self._waiting(queue, self._settled(queue))
        return next((letter for letter in found if choice.takes(letter)), None)

    def retry(
        self,
        *,
        key: bytes | str | None = None,
        places: Collection[LetterPlace] = (),
        every: bool = False,
    ) -> int:
        """Append letters to the queue that they came from, behind what is there; answers how many.

        They go to the partition where they failed, in order, with the key, payload, id, time and
        headers that they had, and one header more: `pxrs-retried`, the letter's place. Every group
        of that queue is given them. Raises NotFound where none is chosen.
        """
        clients: dict[tuple[str, PartitionId], PartitionClient] = {}

        def send(letter: Letter, queue: _LetterQueue) -> None:
            target = (letter.queue, letter.failed_partition)
            if target not in clients:
                clients[target] = self._client(*target)
            _send(letter, queue, clients[target])

        return self._settle(_Choice(key_of(key), set(places), every), send)

    def drop(
        self,
        *,
        key: bytes | str | None = None,
        places: Collection[LetterPlace] = (),
        every: bool = False,
    ) -> int:
        """Give letters up; answers how many. They stay in the log of their queue until retention,
        and are listed no more. Raises NotFound where none is chosen."""
        choice = _Choice(key_of(key), set(places), every)
        return self._settle(choice, lambda letter, queue: None)

    def _settle(self, choice: _Choice, deal: Callable[[Letter, _LetterQueue], None]) -> int:
        queue, count = self._queue(), 0
        settled, left = self._settled(queue), set(choice.places)
        try:
            for letter in self._waiting(queue, settled):
                if not choice.takes(letter):
                    continue
                deal(letter, queue)
                settled.add(letter.partition, letter.offset)
                left.discard((letter.partition, letter.offset))
                count += 1
                if count % SETTLED_KEPT_EVERY == 0:
                    self._keep(queue, settled)
                if choice.places and not left:
                    break
        finally:
            if count:
                self._keep(queue, settled)
        if left or not count:
            told = ", ".join(f"P{p}@{o}" for p, o in sorted(left)) or "no letter"
            others = f"; {count} others were dealt with" if count else ""
            raise NotFound(
                f"{told} of {self._group} waits: `pxrs dead-letters list {self._group}` shows what "
                f"does{others}"
            )
        return count

    def _client(self, queue: str, partition: PartitionId) -> PartitionClient:
        config = self._topology.config
        names = {config.full_name(name): name for name in config.queues}
        if queue not in names:
            raise NotFound(f"queue {queue}, where the letters came from, is gone")
        spec, _, buffers = self._topology.queue_spec(names[queue])
        if spec.external:
            raise UsageError(f"queue {queue} is external: send the messages again there")
        if partition >= spec.partitions:
            raise NotFound(
                f"queue {queue} has {spec.partitions} partitions, and a letter came from "
                f"P{partition} of a queue that is gone: produce its message anew, and drop it"
            )
        return PartitionClient(self._topology.name, buffers, spec.queue, partition)

    # --- what there is --------------------------------------------------------------------------

    def _queue(self) -> _LetterQueue:
        group = self._coordinator.call(GetGroupSpec(self._group))
        queue = group.config.dead_letter_queue
        if queue is None:
            raise UsageError(
                f"group {self._group} has failure_policy = {group.config.failure_policy!r}: only "
                "'dead_letter' sends letters"
            )
        return _LetterQueue(queue, self._topology.queue_spec(queue)[0].queue_id, group.group)

    def _settled(self, queue: _LetterQueue) -> SettledLetters:
        return SettledLetters.from_text(self._topology.document(queue.document), queue.queue_id)

    def _keep(self, queue: _LetterQueue, settled: SettledLetters) -> None:
        self._topology.keep_document(queue.document, settled.to_text())

    def _waiting(self, queue: _LetterQueue, settled: SettledLetters) -> Iterator[Letter]:
        reader = QueueReader.of(self._topology, queue.name)
        ends = reader.ends()
        for partition, end in ends.items():
            settled.forget_below(partition, end.start_offset)
        reader.only({p: end.start_offset for p, end in ends.items()})
        for message in reader.messages(follow=False):
            letter = letter_from(message)
            if letter is None or letter.group != queue.group:
                continue
            if not settled.has(letter.partition, letter.offset):
                yield letter


def _send(letter: Letter, queue: _LetterQueue, client: PartitionClient) -> None:
    message, place = letter.message, f"P{letter.partition}@{letter.offset}"
    batch = Batch.of(
        [message.key],
        [message.payload],
        timestamp_ms=wall_ms(),
        timestamps_ms=[message.timestamp_ms],
        headers=[(*message.headers, (RETRIED, f"{queue.name} {place}".encode()))],
        ids=[message.id],
    )
    identity = producer_id(f"retry of {queue.name}/{queue.queue_id}/{place}")
    with suppress(SequenceConflict):  # it is there, from a call that was cut off
        client.append(batch, identity, 0, 0)
