"""The one rule that says what a failed call to a buffer means, over both of what carries it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from inspect import signature
from typing import Any

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    GetTimeoutError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from pxrs_ray import errors
from pxrs_ray.actors.buffer import socket_client
from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.actors.buffer.call_failure import CallFailure, failure_of, not_served, ours
from pxrs_ray.actors.buffer.local_socket import connect
from pxrs_ray.actors.buffer.replica_buffer import ReplicaBuffer
from pxrs_ray.actors.buffer.socket_client import SocketClient
from pxrs_ray.actors.buffer.socket_server import SocketServer
from pxrs_ray.data import call_tries
from pxrs_ray.data.link_door import GREETING_BYTES, Tickets
from pxrs_ray.data.link_messages import CALLS
from pxrs_ray.data.link_reader import LinkReader
from pxrs_ray.data.protocol import Appended, Fetched, Refused
from pxrs_ray.errors import (
    BufferAway,
    DeadlineExceeded,
    DiskFull,
    LeaseOver,
    LogAway,
    LogError,
    LogLost,
    ProtocolError,
    PxrsError,
)
from tests.actors.conditions import until
from tests.actors.hearing import hearing

WAIT_S = 20
AWAY, ANSWER, REFUSED = CallFailure

# What a buffer's method raises, or a `Refused` of its answer holds: what it means.
RAISED_THERE: dict[str, CallFailure] = {
    "BufferAway": AWAY,
    "DeadlineExceeded": AWAY,
    "LeaseOver": AWAY,
    "SlotWaits": AWAY,
    "CoordinatorDeposed": ANSWER,
    "DiskFull": ANSWER,
    "Fenced": ANSWER,
    "LockHeld": ANSWER,
    "LogAway": ANSWER,
    "LogCorrupted": ANSWER,
    "LogLost": ANSWER,
    "LogReplaced": ANSWER,
    "NotFound": ANSWER,
    "OffsetOutOfRange": ANSWER,
    "PartitionFull": ANSWER,
    "ProducerFenced": ANSWER,
    "RetentionBlocked": ANSWER,
    "SequenceGap": ANSWER,
    "UnknownMember": ANSWER,
    "LogError": REFUSED,
    "MessageTooLarge": REFUSED,
    "SequenceConflict": REFUSED,
    "UsageError": REFUSED,
}
# No error of the tree, but one that passes is an answer: another partition may be well.
BY_ACCIDENT: list[tuple[Exception, CallFailure]] = [
    (OSError(24, "Too many open files"), ANSWER),
    (MemoryError(), ANSWER),
    (TimeoutError("of the disk"), ANSWER),
    (TypeError("fetch() takes 5 arguments"), REFUSED),
    (KeyError("queue\nand a second line"), REFUSED),
]
# What Ray raises itself.
OF_RAY: list[Exception] = [
    RayActorError(),
    ActorDiedError(),
    ActorUnavailableError("the node\nis gone", None),
    ActorUnschedulableError("no node"),
    WorkerCrashedError(),
    GetTimeoutError("slow"),
]


def through_ray(error: Exception) -> RayTaskError:
    """As a method of an actor raises it."""
    return RayTaskError("fetch", "Traceback\n  many lines", error)


@pytest.mark.parametrize(("name", "meant"), RAISED_THERE.items())
def test_what_an_error_of_ours_means(name: str, meant: CallFailure) -> None:
    error: PxrsError = getattr(errors, name)("why")
    assert failure_of(error) is meant
    assert failure_of(through_ray(error)) is meant
    assert ours(through_ray(error)) is error, "the caller gets what the buffer raised"
    assert ours(through_ray(error).as_instanceof_cause()) is error


@pytest.mark.parametrize(("error", "meant"), BY_ACCIDENT, ids=repr)
def test_what_is_raised_by_accident_is_told_in_one_line(
    error: Exception, meant: CallFailure
) -> None:
    for carried in (error, through_ray(error), through_ray(error).as_instanceof_cause()):
        assert failure_of(carried) is meant
        told = ours(carried)
        assert isinstance(told, LogError) and str(told).startswith(type(error).__name__)
        assert "\n" not in str(told)


@pytest.mark.parametrize("error", OF_RAY, ids=repr)
def test_an_error_of_ray_says_nothing_of_the_outcome(error: Exception) -> None:
    told = ours(error)
    assert failure_of(error) is AWAY and type(told) is BufferAway
    assert str(told).startswith(type(error).__name__) and "\n" not in str(told)


def test_who_is_not_served_is_told_of_every_partition() -> None:
    over, lost = Refused(0, LeaseOver("no lease")), Refused(0, LogLost("disk"))
    assert not_served([over]) is over.error
    assert not_served({3: over}) is over.error
    for answer in (None, [], {}, 7, [lost], {1: lost}, ["x"], {0: object()}):
        assert not_served(answer) is None


# --- both carriers, and both ways to wait


class Handle:
    """An actor's handle whose every call ends as it is told."""

    def __init__(self, end: Callable[[], Any], line: str = "") -> None:
        self.end, self.calls = end, 0
        self._line = line

    def __getattr__(self, name: str) -> Handle:
        if name == "leads":  # it is no replica
            raise AttributeError(name)
        return self

    @property
    def line(self) -> Handle:
        return Handle(lambda: self._line)

    def remote(self, *arguments: object) -> Future[Any]:
        self.calls += 1
        coming: Carried = Carried()
        try:
            coming.set_result(self.end())
        except Exception as error:
            coming.set_exception(error)
        return coming


class Carried(Future[Any]):
    """What a call of Ray's answers: a thread takes its `future`, an event loop awaits it."""

    def future(self) -> Future[Any]:
        return self

    def __await__(self) -> Any:
        return asyncio.wrap_future(self).__await__()


def raises(error: Exception) -> Callable[[], Any]:
    def end() -> Any:
        raise error

    return end


EVERY = [(getattr(errors, name)("why"), meant) for name, meant in RAISED_THERE.items()]


@pytest.mark.parametrize(("error", "meant"), EVERY, ids=repr)
def test_ray_carries_a_failure_to_threads_and_event_loops(
    error: PxrsError, meant: CallFailure
) -> None:
    client = BufferClient(Handle(raises(through_ray(error).as_instanceof_cause())))

    async def awaited() -> object:
        return await client.fetch("q", "g", {})

    for take in (lambda: client.fetch("q", "g", {}).result(WAIT_S), lambda: asyncio.run(awaited())):
        with pytest.raises(type(error)) as raised:
            take()
        assert raised.value is error and failure_of(raised.value) is meant


@pytest.mark.parametrize(("error", "meant"), EVERY, ids=repr)
def test_a_socket_carries_the_same_failure(error: PxrsError, meant: CallFailure) -> None:
    async def main() -> None:
        async def method(*arguments: object) -> None:
            raise error

        server = SocketServer({"append": method, "fetch": method})
        loop = asyncio.get_running_loop()
        for on in (hearing(), loop):
            offer = await server.open()
            assert offer is not None
            connected = connect(offer.address)
            assert connected is not None
            client = BufferClient(Handle(raises(AssertionError("not by Ray"))), on)
            client._here.take(connected, offer)
            line = client._here.socket
            assert line is not None
            await until(lambda line=line: line.welcome)
            if on is not loop:
                coming = client.append("q", [], 0).future()
                told = await asyncio.to_thread(lambda c=coming: ours(c.exception(WAIT_S)))
            else:
                with pytest.raises(PxrsError) as raised:
                    # A socket that broke is no answer: the read goes through Ray then.
                    await client.append("q", [], 0).within(WAIT_S)
                told = raised.value
            assert type(told) is type(error) and failure_of(told) is meant
            client.close()
        server.close()

    asyncio.run(main())


def test_silence_has_a_deadline_that_names_the_call() -> None:
    class Silent(Handle):
        def remote(self, *arguments: object) -> Future[Any]:
            return Carried()

    client = BufferClient(Silent(lambda: None))
    with pytest.raises(DeadlineExceeded, match=r"did not answer ends in 0\.05 s"):
        client.ends("q").result(0.05)
    with pytest.raises(DeadlineExceeded, match=r"did not answer ends in 0\.05 s"):
        asyncio.run(client.ends("q").within(0.05))


@pytest.mark.parametrize("on_loop", [True, False])
def test_a_socket_that_takes_nothing_more_blocks_nobody_and_holds_only_so_much(
    on_loop: bool,
) -> None:
    async def main() -> None:
        mine, theirs = socket.socketpair()
        hears = asyncio.get_running_loop() if on_loop else hearing()
        client = SocketClient(mine, Tickets().offer("", 0), hears)
        began_s, calls = time.monotonic(), []
        with pytest.raises(ProtocolError, match="wait for the socket"):
            while len(calls) < 1_000:
                calls.append(client.call("append", "q", [(0, b"", b"x" * 50_000)], 0))
        assert time.monotonic() - began_s < 1
        assert client._writes.waiting_bytes <= socket_client.WAITING_BYTES_MAX + 60_000
        assert len(client._calls) == len(calls), "what did not go is not waited for"
        client.close()
        for call in calls:
            with pytest.raises(BufferAway):
                await (call if on_loop else asyncio.wrap_future(call))
        theirs.close()

    asyncio.run(main())


@pytest.mark.parametrize("on_loop", [True, False])
def test_what_waits_for_a_socket_goes_when_it_takes_more(on_loop: bool) -> None:
    async def main() -> None:
        mine, theirs = socket.socketpair()
        hears = asyncio.get_running_loop() if on_loop else hearing()
        client = SocketClient(mine, Tickets().offer("", 0), hears)
        bodies = [bytes([number]) * 50_000 for number in range(40)]
        calls = [client.call("append", "q", [(0, b"", body)], 0) for body in bodies]
        reader, got, theirs_loop = LinkReader(CALLS), [], asyncio.get_running_loop()
        theirs.setblocking(False)
        data = await theirs_loop.sock_recv(theirs, GREETING_BYTES)
        while len(got) < len(bodies):
            data = await asyncio.wait_for(theirs_loop.sock_recv(theirs, 8_000), WAIT_S)
            assert data, "the line ended before everything had gone"
            got += [message.content[1][0][2] for message in reader.feed(data)]
        assert got == bodies, "whole, and in order"
        client.close()
        assert len(calls) == len(bodies)
        theirs.close()

    asyncio.run(main())


# --- the blocking facade: which failure is asked again, which is the caller's


def served_by(*ends: Callable[[], Any]) -> tuple[BlockingBufferClient, Handle]:
    """A facade to a buffer whose calls end so, one after the other, the last one for ever."""
    left = list(ends)
    handle = Handle(lambda: (left.pop(0) if len(left) > 1 else left[0])())
    return BlockingBufferClient("t", 1, 0.4, BufferClients("t", {0: handle})), handle


OVER = Refused(0, LeaseOver("no lease now"))
FRAME = (0, b"", b"")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_tries, "PAUSE_FIRST_S", 0.001)


@pytest.mark.parametrize(("error", "meant"), EVERY, ids=repr)
def test_who_is_away_is_asked_again_and_who_answers_is_not(
    error: PxrsError, meant: CallFailure
) -> None:
    fetched = [Fetched(0, (), 1, 0, 1)]
    for end in (raises(through_ray(error)), lambda: [Refused(0, error)]):
        client, handle = served_by(end, lambda: fetched)
        if meant is AWAY:
            assert client.fetch("q", "g", 0, 0) == fetched[0]
            assert handle.calls == 2
            continue
        try:
            answer = client.fetch("q", "g", 0, 0)
        except PxrsError as raised:
            assert raised is error
        else:
            assert isinstance(answer, Refused) and answer.error is error
        assert handle.calls == 1, "the caller judges it"


def test_a_repeated_append_has_the_same_frame_and_its_first_answer() -> None:
    appended = Appended(0, 7, 1, repeated=True)
    client, handle = served_by(raises(RayActorError()), lambda: [OVER], lambda: [appended])
    # Ray says that the actor is away: it is found anew, and here it is the same one.
    client._clients.failed = lambda index, error: None  # type: ignore[method-assign]
    assert client.append("q", FRAME) == appended
    assert handle.calls == 3


def test_at_the_deadline_the_last_trouble_is_told() -> None:
    client, handle = served_by(lambda: [OVER])
    with pytest.raises(DeadlineExceeded, match=r"buffer 0 of topology 't'.*no lease now"):
        client.append("q", FRAME)
    assert handle.calls > 3


@pytest.mark.parametrize("error", [DiskFull("full"), LogAway("no descriptors")])
def test_a_refused_append_is_raised(error: PxrsError) -> None:
    client, handle = served_by(lambda: [Refused(0, error)])
    with pytest.raises(type(error)):
        client.append("q", FRAME)
    assert handle.calls == 1


# --- one method a call, as the buffer has it


def test_the_client_has_the_buffers_own_signatures() -> None:
    """What is called here is what `Buffer` takes, or one of replicas: by name, and in the same
    order."""
    mine = {
        name: method
        for name, method in vars(BufferClient).items()
        if callable(method)
        and not name.startswith("_")
        and name not in ("close", "connect", "stop")
    }
    assert len(mine) > 15
    for name, method in mine.items():
        theirs = list(signature(getattr(ReplicaBuffer, name)).parameters)
        given = [p.name for p in signature(method).parameters.values() if p.name != "size_bytes"]
        assert given == theirs[: len(given)], name
        assert "BufferReply" in str(signature(method).return_annotation), name
