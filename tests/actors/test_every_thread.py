"""Each kind of end in each thread, and in what buffers and consumers do of themselves.

`tests.actors.test_every_loop.PLACES` says which place is met where.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer import (
    buffer_clients,
    coordinator_recovery,
    log_writer,
    maintenance,
    start_notice,
)
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.actors.buffer.local_socket import connect
from pxrs_ray.actors.buffer.shared_answers import SharedAnswers
from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.actors.buffer.socket_server import SocketServer
from pxrs_ray.actors.client import tenants
from pxrs_ray.actors.cluster import watchdog
from pxrs_ray.actors.coordinator import buffer_pool, consumer_replicas
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.link_messages import append_call
from pxrs_ray.data.protocol import BufferInfo
from pxrs_ray.errors import BufferAway
from pxrs_ray.log import scrub
from pxrs_ray.supervision import coordinator_watch
from pxrs_ray.supervision.restart_rules import RestartRules
from pxrs_ray.supervision.supervisor import Supervisor, problems_here
from tests.actors.ends import KINDS
from tests.actors.hearing import hearing
from tests.actors.in_process import World, until
from tests.actors.in_process import world as world
from tests.actors.test_every_loop import quick as quick
from tests.actors.test_supervision import Fails, run

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("place", ["the watchdog", "tenants", "progress of a feed", "an heir"])
def test_a_thread_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, kind: str
) -> None:
    fails = Fails(kind, 2)
    if place == "the watchdog":
        dog = watchdog.Watchdog(tmp_path, every_s=0.01)
        monkeypatch.setattr(dog, "look_round", fails)
        dog.start()
        assert fails.worked.wait(10)
        dog.close()
    elif place == "tenants":
        producer: Any = object.__new__(tenants.TenantProducer)
        producer._ended, producer._fenced = threading.Event(), False
        producer._sync = lambda *_, **__: fails()
        rules = RestartRules(pause_first_s=0.01)
        Supervisor("tenants", rules).thread(
            "pxrs-tenants", producer._run, again=lambda: not producer._ended.is_set()
        ).start()
        assert fails.worked.wait(10)
        producer._ended.set()
    elif place == "an heir":
        monkeypatch.setattr(coordinator_recovery, "LOOK_PAUSE_S", 0.01)
        monkeypatch.setattr(coordinator_watch, "QUIET_S_MIN", 0.0)
        one = coordinator_recovery.CoordinatorRecovery("t", 0, 0.0)
        monkeypatch.setattr(one, "_make_where_it_belongs", fails)
        one.remember(coordinator_recovery.RecoveryPlan(PxrsConfig(name="t", queues={"q": {}}), 1))
        assert fails.worked.wait(10)
        one.close()
    else:
        feed = importlib.import_module("pxrs_ray.spark.write")
        monkeypatch.setattr(feed, "BAR_EVERY_S", 0.01)
        with feed._watched(fails):
            assert fails.worked.wait(10)


@every_kind
def test_a_buffer_that_cannot_tell_its_start_starts(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    asked = threading.Event()

    def lookup(*arguments: Any, **named: Any) -> None:
        asked.set()
        raise KINDS[kind]()

    monkeypatch.setattr(start_notice.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(start_notice.ray, "get_actor", lookup)
    start_notice.tell_started("t", 0)
    assert asked.wait(10)


@every_kind
def test_a_pulse_is_answered_again(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    fails = Fails(kind, 2)
    real = watchdog._ANSWER

    def pack(silent_s: float) -> bytes:
        fails()
        return real.pack(silent_s)

    monkeypatch.setattr(watchdog, "_ANSWER", SimpleNamespace(pack=pack, size=real.size))
    pulse = watchdog.PulseLine()
    assert _answered(pulse)
    pulse.close()


def test_a_pulse_is_answered_again_when_there_are_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = [3]
    accept = socket.socket.accept

    def no_descriptors(self: socket.socket) -> Any:
        caller, place = accept(self)
        if left[0]:
            left[0] -= 1
            caller.close()
            raise OSError(errno.EMFILE, "too many open files")
        return caller, place

    monkeypatch.setattr(socket.socket, "accept", no_descriptors)
    pulse = watchdog.PulseLine()
    assert _answered(pulse) and not left[0]
    pulse.close()


def _answered(pulse: watchdog.PulseLine) -> bool:
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(1)
            try:
                asking.connect(f"\0{pulse.name}")
                if asking.recv(8):
                    return True
            except OSError:
                continue
    return False


@every_kind
def test_a_line_that_gets_rubbish_answers_every_call(kind: str) -> None:
    async def main() -> None:
        fails = Fails(kind, 1)

        async def method(*arguments: Any) -> list[Any]:
            fails()
            return []

        server = SocketServer({"append": method})
        offer = await server.open()
        assert offer is not None
        connected = connect(offer.address)
        assert connected is not None
        line = SocketClient(connected, offer, hearing())
        failed = line.call("append", "q", [], 0)
        await until(failed.done)
        assert failed.exception() is not None and not line.broken
        answer = line.call("append", "q", [], 0)
        await until(answer.done)
        assert answer.result() == [], "the buffer's end goes on"
        # And the caller's own end: what it cannot read breaks the line, and every call hears it.
        line._calls[5] = waits = type(answer)()
        line._calls[6] = SimpleNamespace(
            done=lambda: False, set_result=Fails(kind, 1), set_exception=lambda error: None
        )
        line._socket.sendall(append_call(6, "q", [], 0))
        await until(lambda: line.broken and waits.done())
        assert isinstance(waits.exception(), BufferAway)
        server.close()

    run(main)


@every_kind
def test_the_thread_of_links_goes_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    poll, fails = SharedAnswers(), Fails(kind, 2)
    mine, theirs = socket.socketpair()
    monkeypatch.setattr(poll, "take", lambda ready=(): fails())
    poll.add(SimpleNamespace(awaits=False, fileno=mine.fileno, receive=lambda: None))
    theirs.sendall(b"x")
    assert fails.worked.wait(10)
    monkeypatch.undo()
    mine.close()
    theirs.close()


@every_kind
def test_a_feed_in_the_background_raises_where_it_is_asked_for(kind: str) -> None:
    demo = importlib.import_module("pxrs_ray.demo.run")
    work = demo._Background(Fails(kind, 1))
    with pytest.raises(KINDS[kind]):
        work.result(5)


# --- buffers and consumers ----------------------------------------------------------------------


class Log:
    """A log as far as the writer and the tending see it."""

    queue, partition, folder, changes, dirty, state = "q", 0, "f", 0, False, "open"
    limits = SimpleNamespace(durability="interval", fsync_interval_ms=1)

    def __init__(self) -> None:
        self.synced = 0
        self.dirty = False
        self.fails: Callable[[], object] = lambda: None

    def sync(self) -> None:
        self.fails()
        self.synced, self.dirty = self.synced + 1, False

    def retain(self, now_ms: int) -> None:
        self.fails()


@every_kind
@pytest.mark.parametrize("size_bytes", [1, 1 << 30], ids=["at once", "on a thread"])
def test_a_writer_answers_every_job_and_goes_on(kind: str, size_bytes: int) -> None:
    async def main() -> None:
        made, log = log_writer.LogWriter(lambda log: None), Log()
        bad = made.do(Fails(kind, 1), (), size_bytes)
        good = made.do(lambda: 7, (), size_bytes)
        told = await asyncio.gather(bad, good, return_exceptions=True)
        assert isinstance(told[0], Exception) and told[1] == 7, "one job's end is no other's"
        log.fails, log.dirty = Fails(kind, 2), True
        await made.do(lambda: 8, (log,), size_bytes)  # type: ignore[arg-type]
        await until(lambda: log.synced)
        # And what fails outside of any job: told, and the next ones are answered.
        changed = Fails(kind, 1)
        made._changed = lambda log: changed()

        def change() -> None:
            log.changes += 1

        with pytest.raises(Exception, match="not known to be durable"):
            await made.do(change, (log,), size_bytes)  # type: ignore[arg-type]
        assert any(kind in line for line in made._supervisor.problems())
        assert await asyncio.wait_for(made.do(lambda: 9, (), size_bytes), 5) == 9
        await made.close()

    run(main)


@every_kind
@pytest.mark.parametrize("what", ["mending", "retention", "scrubbing"])
def test_what_a_buffer_does_of_itself_goes_on(
    monkeypatch: pytest.MonkeyPatch, what: str, kind: str
) -> None:
    monkeypatch.setattr(scrub, "STEP_REST_S", 0.01)
    monkeypatch.setattr(scrub, "ROUND_REST_S", 0.01)

    async def main() -> None:
        fails, log = Fails(kind, 2), Log()
        log.fails = fails
        manager: Any = SimpleNamespace(
            due=lambda now_ms: fails() or [] if what == "mending" else [],
            to_retain=lambda now_ms: [log] if what == "retention" else [],
            all_logs=lambda: fails() or [] if what == "scrubbing" else [],
            files=None,
        )
        made = log_writer.LogWriter(lambda log: None)
        loops = maintenance.Maintenance(manager, SimpleNamespace(behind=False), made, {})  # type: ignore[arg-type]
        loops.begin()
        seen: set[str] = set()
        await until(lambda: seen.update(problems_here()) or fails.worked.is_set())
        assert any(what in line and kind in line for line in seen), seen
        await loops.close()
        await made.close()

    run(main)


def test_what_is_wrong_with_a_buffers_loops_is_told_by_the_topology() -> None:
    pool = buffer_pool.BufferPool("t", 1, "")
    pool._note(BufferInfo("t", 0, "i", 7, "node", (), problems=("retention of q/0: no space",)))
    assert list(map(str, pool.reports())) == [
        "buffer 0 (pid 7 on node node): retention of q/0: no space"
    ]
    pool._note(BufferInfo("t", 0, "i", 7, "node", ()))
    assert pool.reports() == []


@every_kind
def test_what_a_consumer_does_beside_its_work_goes_on(
    world: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from pxrs_ray.actors.consumer import consumer_actor as consumer_module

    monkeypatch.setattr(consumer_module, "LOOK_EVERY_S", 0.01)
    fails = Fails(kind, 2)

    async def main() -> None:
        here: World = world(1)
        await here.up()
        monkeypatch.setattr(consumer_module.CallRecord, "look", lambda self: fails())
        consumer = await here.consumer("c1", lambda message: None)
        await until(fails.worked.is_set)
        assert any("looking" in line and kind in line for line in consumer._problems())
        await here.produce([b"k"] * 3)
        await here.reaches(3)
        await here.down()
        assert await asyncio.wait_for(consumer.run(), 5) == "finished"

    run(main)


@every_kind
def test_a_hand_over_that_fails_ends_the_process(
    world: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from pxrs_ray.actors.consumer import consumer_actor as consumer_module

    ended: list[int] = []

    async def main() -> None:
        here: World = world(1)
        await here.up()
        monkeypatch.setattr(consumer_module.os, "_exit", ended.append)
        consumer = await here.consumer("c1", lambda message: None)
        here.faults = lambda name, arguments: Fails(kind, 1)() if name == "leave" else None
        consumer._terminate()
        await until(lambda: ended)
        here.faults = lambda name, arguments: None
        await here.down()

    run(main)
    assert ended == [0]


@every_kind
def test_replicas_that_could_not_be_kept_are_kept_later(kind: str) -> None:
    kept: list[str] = []
    fails = Fails(kind, 2)

    async def keep(text: str) -> None:
        fails()
        kept.append(text)

    async def main() -> None:
        settings = SimpleNamespace(paused=False)
        state = SimpleNamespace(members={})
        host: Any = SimpleNamespace(core=SimpleNamespace(settings=settings, state=state))
        spec: Any = SimpleNamespace(group="g")
        made = consumer_replicas.ConsumerReplicas(spec, host, keep)
        for member in ("a", "b"):
            made.incarnations[member] = 1
            made._changed()
            await asyncio.sleep(0)
        made.incarnations["c"] = 1
        made.supervisor = SimpleNamespace(replicas=dict.fromkeys("abc"), handler=None)  # type: ignore[assignment]
        made.supervisor.replicas.clear()
        made._changed()
        await until(lambda: kept)
        assert any(kind in line for line in made._loops.problems()) or not fails.left
        await until(lambda: not made._unkept.is_stale)

    run(main)
    assert fails.left == 0


@every_kind
def test_a_look_is_told(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Who waits for a buffer hears what came of it."""
    fails, handle = Fails(kind, 1), SimpleNamespace()

    def find(*_: object) -> Any:
        fails()
        return handle

    monkeypatch.setattr(buffer_clients, "find_buffer", find)
    clients = BufferClients("t")
    assert clients.when_found(0).exception(10) is not None
    assert clients.when_found(0).result(10).handle is handle
    clients.close()
