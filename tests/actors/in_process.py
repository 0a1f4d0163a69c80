"""A group without Ray: the real buffer, group host and consumers on one event loop.

Rules of this file: what a consumer, the coordinator and a buffer say to each other goes by direct
calls; everything else is the product's own. Handlers are called by reference, so a test can hand
in closures and see what they noted.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.actors.consumer import consumer_actor as consumer_module
from pxrs_ray.actors.consumer.consumer_actor import Consumer
from pxrs_ray.actors.consumer.fetcher import Fetcher
from pxrs_ray.actors.consumer.group_member import GroupMember
from pxrs_ray.actors.consumer.handler import HandlerRef
from pxrs_ray.actors.consumer.member_requests import MemberRequest
from pxrs_ray.actors.consumer.specs import ConsumerSpec, GroupSpec
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.member_api import MemberApi
from pxrs_ray.actors.coordinator.request_handlers import answered_by
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.config import GroupConfig
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.group.events import Died, Dismiss
from pxrs_ray.model import PartitionId, Snapshot
from pxrs_ray.store.memory import MemoryStore
from tests.leases import let_serve
from tests.settings import group_settings, log_limits

WAIT_S = 20.0
HANDLERS = SimpleNamespace()

_numbers = itertools.count(1)


def by_reference(handler: object) -> HandlerRef:
    """A reference to the very object, not to a copy of it."""
    name = f"h{next(_numbers)}"
    setattr(HANDLERS, name, handler)
    return HandlerRef(f"{__name__}:HANDLERS.{name}", None, "auto", name)


class World:
    """One queue `q`, one buffer, one group `g`. Make it with the fixture `world`."""

    def __init__(self, folder: Path, config: GroupConfig, partitions: int = 1) -> None:
        self.config, self.partitions = config, partitions
        self.consumers: list[Consumer] = []
        self.deposed_by: BaseException | None = None
        self.faults: Callable[[str, tuple[Any, ...]], None] = lambda name, arguments: None
        # What may go wrong with a call before it is made, and with its answer.
        self.answers: Callable[[str, tuple[Any, ...]], None] = lambda name, arguments: None
        self._folder = folder
        self._epochs = itertools.count(1)
        self.buffer: Buffer
        self.host: GroupHost
        self.member_api: MemberApi

    async def up(self) -> None:
        self.buffer = Buffer("t", 0, 1, str(self._folder))
        await self.buffer.open(QueueSpec("q", self.partitions, log_limits()), {}, make=True)
        await let_serve(self.buffer)
        self.thread = StoreThread(lambda: MemoryStore())
        self.store = store = await self.thread.open()
        await self.thread.call(store.create)
        self.host = GroupHost("t/g", store, self.thread, SystemClock(), self, 1_000)
        snapshot = await self.thread.call(store.lead, "t/g", self.partitions, "test")
        lease_ms, revoke_ms = self.config.lease_ms, self.config.revoke_deadline_ms
        await self.host.start(
            snapshot, group_settings(lease_ms=lease_ms, revoke_deadline_ms=revoke_ms)
        )
        self.spec = GroupSpec("t", "t-1", "g", "q", self.partitions, 1, self.config)
        replica_set: Any = SimpleNamespace(
            replicas={}, incarnations={}, spec=self.spec, supervisor=None
        )
        logs: Any = SimpleNamespace()  # nobody asks the logs for witness here
        self.member_api = MemberApi(self.host, replica_set, logs)

    async def down(self) -> None:
        for consumer in self.consumers:
            await asyncio.wait_for(consumer.finish(), WAIT_S)
        await self.host.close()
        await self.thread.close()
        await self.buffer.close()

    # --- the shell of the group host ------------------------------------------------------------

    def fence(self, group: str, epochs: dict[int, int]) -> None:
        self._fencing = asyncio.ensure_future(self.buffer.fence("q", "g", epochs))

    def dismissed(self, group: str, dismiss: Dismiss) -> None: ...

    def deposed(self, group: str, error: BaseException) -> None:
        self.deposed_by = error

    async def lead_again(self, group: str) -> Snapshot:
        return await self.thread.call(self.store.lead, group, self.partitions, "again")

    def led(self, *arguments: Any) -> None: ...

    # --- what a test does -----------------------------------------------------------------------

    async def produce(
        self, keys: list[bytes | None], partition: PartitionId = 0, payload: bytes = b""
    ) -> None:
        """Messages in frames of one, of a new producer; the payload is the message's number."""
        producer = b"%016d" % next(_numbers)
        for sequence, key in enumerate(keys):
            batch = Batch.of([key], [payload or b"%d" % sequence], timestamp_ms=1)
            frame = batch.to_wire(producer, 0, sequence)
            await self.buffer.append("q", [(partition, *frame)], 0)

    async def consumer(self, member: str, handler: object) -> Consumer:
        token = f"{member}-{next(_numbers)}"
        incarnation, assignment = await self.member_api.join(member, token)
        made = Consumer(ConsumerSpec(self.spec, member, incarnation, by_reference(handler), token))
        self.consumers.append(made)
        await made.begin(incarnation, assignment)
        return made

    async def kill(self, consumer: Consumer) -> None:
        """As if its process had died: what it has not committed is gone."""
        runtime = consumer._live()
        await runtime.close()
        consumer._workers.stop_all()
        self.consumers.remove(consumer)
        session = runtime.session
        await self.host.submit(Died(session.member, session.incarnation, "killed by the test"))

    def checkpoints(self) -> list[int]:
        return [row.checkpoint for row in self.host.core.state.rows]

    async def reaches(self, *checkpoints: int, wait_s: float = WAIT_S) -> None:
        await until(lambda: self.checkpoints() == list(checkpoints), wait_s, self.checkpoints)


async def until(
    holds: Callable[[], object], wait_s: float = WAIT_S, seen: Callable[[], object] = lambda: ""
) -> None:
    """Return when `holds`; after `wait_s` that is an error, which says what was `seen`."""
    end_s = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < end_s, f"not in {wait_s} s; seen: {seen()}"
        await asyncio.sleep(0.01)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Makes a `World` whose parts call each other directly; the test puts it up and down."""
    made: list[World] = []

    class Local(GroupMember):
        async def _call(self, request: MemberRequest[Any], wait_s: float | None = None) -> Any:
            await asyncio.sleep(0.001)
            name = answered_by(MemberApi)[type(request)]
            arguments = pickle.loads(pickle.dumps(request)).arguments()
            made[-1].faults(name, arguments)
            call = getattr(made[-1].member_api, name)
            try:
                found = await asyncio.wait_for(call(*arguments), wait_s or request.wait_s)
            except TimeoutError:
                raise DeadlineExceeded(f"{name} was not answered") from None
            finally:
                made[-1].answers(name, arguments)
            return found

    class Client:
        async def fetch(self, *arguments: Any) -> Any:
            made[-1].faults("fetch", arguments)
            return pickle.loads(pickle.dumps(await made[-1].buffer.fetch(*arguments), protocol=5))

        def close(self) -> None: ...

    monkeypatch.setattr(consumer_module, "GroupMember", Local)
    monkeypatch.setattr(consumer_module, "start_journal", lambda **about: None)
    monkeypatch.setattr(consumer_module, "keep_what_is_loaded", lambda: None)
    monkeypatch.setattr(consumer_module, "on_terminate", lambda tell: lambda: None)
    monkeypatch.setattr(Consumer, "_where", lambda self: (0, ""))

    async def buffer(reading: Fetcher, index: int) -> Client:
        return Client()

    monkeypatch.setattr(Fetcher, "_buffer", buffer)

    def make(partitions: int = 1, **options: Any) -> World:
        usual: dict[str, Any] = {"backoff_ms": 5, "backoff_ms_max": 20, "commit_interval_ms": 20}
        made.append(World(tmp_path, GroupConfig(queue="q", **{**usual, **options}), partitions))
        return made[-1]

    return make
