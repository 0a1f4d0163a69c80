"""`TestTopology`: messages, the shapes of handlers, configuration, and what it costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.errors import DeadlineExceeded, HandlerError, NotFound, UsageError
from pxrs_ray.testing import Delivered, TestTopology
from tests.unit.topologies import Failing, config, running, send

# --- messages -------------------------------------------------------------------------------------


def test_messages_of_a_key_come_in_order_with_all_that_they_carry() -> None:
    seen: list[Any] = []

    def handle(message: Any) -> None:
        seen.append((message.key, message.payload, message.headers, message.timestamp_ms))

    with running(handle, partitions=4, consumers=2) as t:
        receipts = [
            t.send("q", f"k{n % 3}", f"{n}", {"n": f"{n}".encode()}, timestamp=n) for n in range(30)
        ]
        assert seen == []  # nothing happens by itself
        assert t.run_until_idle() == 30
        for key in (b"k0", b"k1", b"k2"):
            numbers = [int(payload) for k, payload, _, _ in seen if k == key]
            assert numbers == list(range(int(key[1:]), 30, 3))
        assert all(h == (("n", p),) and at == int(p) for _, p, h, at in seen)
        placed = {(place.partition, place.offset) for place in (r.result(0) for r in receipts)}
        assert placed == {(each.partition, each.offset) for each in t.delivered("g")}
        assert set(t.owners("g").values()) == {"g-0", "g-1"}


def test_a_batch_handler_gets_what_was_sent_in_one_go() -> None:
    seen: list[list[bytes]] = []

    class Sums:
        def handle_batch(self, batch: Any) -> None:
            seen.append([message.payload for message in batch])

    with running(Sums) as t:
        send(t, "1", "2", "3")
        t.run_until_idle()
        send(t, "4")
        t.run_until_idle()
        assert seen == [[b"1", b"2", b"3"], [b"4"]]


def test_a_class_hears_of_its_partitions_and_each_consumer_has_its_own() -> None:
    heard: list[tuple[str, Any]] = []

    class Handler:
        def on_prepare(self, partition: int, checkpoint: int) -> None:
            heard.append(("prepare", (id(self), partition, checkpoint)))

        def on_assigned(self, partition: int, checkpoint: int) -> None:
            heard.append(("assigned", (id(self), partition, checkpoint)))

        def on_revoked(self, partition: int) -> None:
            heard.append(("revoked", (id(self), partition)))

        def close(self) -> None:
            heard.append(("close", id(self)))

        def handle(self, message: Any) -> None: ...

    with running(Handler, partitions=2, prepare_ms=5_000) as t:
        send(t, "1", "2", key=None)
        t.run_until_idle()
        first = heard[0][1][0]
        assert heard == [("assigned", (first, 0, 0)), ("assigned", (first, 1, 0))]
        t.scale("g", 2)
        t.run_until_idle()
        kinds = [kind for kind, _ in heard[2:]]
        assert kinds == ["prepare", "revoked", "assigned"]  # loaded while the owner went on
        prepared, revoked, assigned = (what for _, what in heard[2:])
        assert prepared[0] == assigned[0] != first and revoked == (first, prepared[1])
        assert assigned[1:] == (prepared[1], 1)  # what the owner did was flushed
        t.scale("g", 1)
        t.run_until_idle()
        assert ("close", prepared[0]) in heard and set(t.owners("g").values()) == {"g-0"}
    assert heard[-1] == ("close", first)


def test_async_handlers_run_too() -> None:
    seen = []

    async def handle(message: Any) -> None:
        await asyncio.sleep(0)
        seen.append(message.payload)

    with running(handle) as t:
        send(t, "1", "2")
        t.run_until_idle()
    assert seen == [b"1", b"2"]


def test_a_handler_that_sends_is_followed_to_the_end() -> None:
    with TestTopology(
        PxrsConfig(queues={"in": QueueConfig(partitions=2), "out": QueueConfig(partitions=2)})
    ) as t:
        t.group("first", lambda m: t.send("out", m.key, m.payload + b"!"), queue="in")
        t.group("second", lambda m: None, queue="out")
        t.send("in", "k", "hello")
        t.run_until_idle()
        assert [each.payload for each in t.delivered("second")] == [b"hello!"]
        assert [message.payload for message in t.messages("out")] == [b"hello!"]


def test_a_full_partition_takes_more_when_its_readers_have_passed() -> None:
    sizes = {"partition_bytes_max": 4_000, "segment_bytes_max": 4_000, "message_bytes_max": 2_000}
    queue = QueueConfig(partitions=1, **sizes)
    with TestTopology(PxrsConfig(queues={"q": queue})) as t:
        receipts = []
        for number in range(3):
            receipts.append(t.send("q", "k", bytes([number]) * 1_500))
            t.messages("q")
        assert [receipt.done() for receipt in receipts] == [True, True, False]
        t.group("g", lambda m: None, queue="q")
        t.advance(5)
        assert receipts[2].result(0).offset == 2 and t.lag("g") == 0


def test_a_topology_that_never_rests_is_an_error() -> None:
    with running(lambda m: t.send("q", m.key, m.payload)) as t:
        send(t, "1")
        with pytest.raises(DeadlineExceeded, match="50 calls"):
            t.run_until_idle(calls_max=50)


# --- configuration --------------------------------------------------------------------------------


def test_it_takes_the_topology_file_and_the_handler_in_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        'name = "shop"\nstore = "etcd://nowhere:2379/"\n[queues.payments]\npartitions = 2\n'
        '[groups.billing]\nqueue = "payments"\nhandler = "pxrs_ray.actors.no:such"\n'
        'failure_policy = "dead_letter"\nattempts_max = 1\nconsumers = 3\n'
    )

    def fail(message: Any) -> None:
        raise ValueError(message.payload)

    with TestTopology(file) as t:
        with pytest.raises(HandlerError, match="cannot be imported"):
            t.group("billing")
        t.group("billing", fail)
        t.send("payments", "a", "1", {"trace": b"7"})
        t.run_until_idle()
        (letter,) = t.dead_letters("billing")
        assert (letter.key, letter.payload, letter.headers[0]) == (b"a", b"1", ("trace", b"7"))
        assert dict(letter.headers)["pxrs-error"] == b"ValueError(b'1')"
        assert t.messages("payments.dead") == [letter]


def test_a_group_may_begin_at_the_end_and_a_label_leads_to_its_partitions() -> None:
    queue = QueueConfig(partitions=4, strategy="label", labels={"gpu": 1, "cpu": 3})
    with TestTopology(PxrsConfig(queues={"q": queue})) as t:
        t.send("q", "k", "before", scope="gpu")
        t.group("late", lambda m: None, queue="q", start="end")
        t.group("early", lambda m: None, queue="q")
        t.send("q", "k", "gpu", scope="gpu")
        t.send("q", "k", "cpu", scope="cpu")
        t.run_until_idle()
        assert {each.payload for each in t.delivered("late")} == {b"gpu", b"cpu"}
        assert len(t.delivered("early")) == 3
        assert {e.payload: e.partition == 0 for e in t.delivered("late")} == {
            b"gpu": True,
            b"cpu": False,
        }


@pytest.mark.parametrize(
    ("act", "error", "match"),
    [
        (lambda t: t.send("other", "k", "1"), NotFound, "other"),
        (lambda t: t.delivered("other"), NotFound, "other"),
        (lambda t: t.group("g", print), UsageError, "runs already"),
        (lambda t: t.group("h", queue="q"), UsageError, "no handler"),
        (lambda t: t.group("h", 3, queue="q"), HandlerError, "callable"),
        (lambda t: t.advance(-1), UsageError, "backwards"),
    ],
)
def test_misuse_is_told(
    act: Callable[[TestTopology], object], error: type[Exception], match: str
) -> None:
    with running(print) as t, pytest.raises(error, match=match):
        act(t)


# --- itself ---------------------------------------------------------------------------------------


def test_runs_are_the_same_and_take_milliseconds() -> None:
    def run() -> list[Delivered]:
        with running(Failing(p3=1, p7=2), partitions=8, consumers=3) as t:
            for n in range(40):
                t.send("q", f"k{n % 11}", f"p{n}")
            t.advance(0.3)
            t.crash("g")
            t.advance(1)
            return [
                (e.member, e.partition, e.offset, e.attempt, e.outcome) for e in t.delivered("g")
            ]  # type: ignore[misc]

    first = run()
    began_s = time.process_time()
    assert run() == first
    assert time.process_time() - began_s < 0.5


def test_it_loads_no_ray_and_pytest_does_not_collect_it(tmp_path: Path) -> None:
    test = tmp_path / "test_of_a_user.py"
    test.write_text(
        "import sys\nfrom pxrs_ray import PxrsConfig, QueueConfig\n"
        "from pxrs_ray.testing import TestTopology\n"
        "def test_it():\n"
        "    with TestTopology(PxrsConfig(queues={'q': QueueConfig(partitions=2)})) as t:\n"
        "        t.group('g', print, queue='q')\n"
        "        t.send('q', 'k', '1')\n"
        "        assert t.run_until_idle() == 1\n"
        "    assert 'ray' not in sys.modules\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(test)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_nothing_is_left_when_it_is_closed(tmp_path: Path) -> None:
    with TestTopology(config()) as t:
        folder = Path(t._folder.name)
        t.send("q", "k", "1")
        t.run_until_idle()
        assert folder.exists()
    assert not folder.exists()
    t.close()
    with pytest.raises(UsageError, match="closed"):
        t.send("q", "k", "1")


def test_what_is_sent_with_a_delay_comes_when_time_has_passed() -> None:
    queues = {"q": QueueConfig(partitions=1, delays=True), "plain": QueueConfig(partitions=1)}
    config = PxrsConfig(queues=queues, groups={"g": GroupConfig(queue="q")})
    with TestTopology(config) as topology:
        topology.group("g", lambda message: None)
        topology.send("q", "k", b"late", {"trace": b"1"}, id="a", delay_s=60)
        topology.send("q", "k", b"later", deliver_at_ms=topology.clock.now().wall_ms + 60_500)
        topology.send("q", "k", b"now", delay_s=0)
        topology.run_until_idle()
        assert [each.payload for each in topology.delivered("g")] == [b"now"]
        assert [len(topology.messages(name)) for name in ("q", "q.delayed")] == [1, 2]
        topology.advance(59.9)
        assert len(topology.delivered("g")) == 1
        topology.advance(0.2)
        assert [each.payload for each in topology.delivered("g")] == [b"now", b"late"]
        topology.advance(1)
        message = topology.messages("q")[1]
        assert (message.key, message.id, message.headers[0]) == (b"k", "a", ("trace", b"1"))
        assert [each.payload for each in topology.delivered("g")][2:] == [b"later"]
        with pytest.raises(UsageError, match="delays = true"):
            topology.send("plain", "k", b"m", delay_s=1)
