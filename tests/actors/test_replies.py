"""Replies on real Ray: who waits is told, in another process too, though consumers are killed."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pxrs_ray import Delivery, Topology, attach
from pxrs_ray.config import ByKey, QueueConfig
from pxrs_ray.errors import DeadlineExceeded, HandlerError, UsageError
from tests.actors.conftest import Stage

pytestmark = pytest.mark.ray

QUICK = {"backoff_ms": 10, "backoff_ms_max": 20, "commit_interval_ms": 20, "attempts_max": 2}


def answer(message: Delivery) -> None:
    """Replies in capitals, but for what is bad, or needs none."""
    time.sleep(0.01)
    if message.payload.startswith(b"bad"):
        raise ValueError("cannot do that")
    if not message.payload.startswith(b"silent"):
        message.reply(message.payload.upper(), {"by": str(message.context.attempt).encode()})


async def answer_async(message: Delivery) -> None:
    """The same, on an event loop."""
    await message.reply_async(message.payload.upper())


def test_who_waits_is_told_though_a_consumer_is_killed(stage: Stage) -> None:
    import ray

    queue = QueueConfig(partitions=4, replies=True)
    topology = stage.deploy(queues={"q": queue})
    group = topology.group(
        "g", queue="q", failure_policy="dead_letter", processing=ByKey(parallelism=8), **QUICK
    )
    group.start(answer, consumers=2)
    with topology.replies("q") as replies, ThreadPoolExecutor(24) as threads:
        asked = [
            threads.submit(replies.ask, f"k{n % 16}", f"m{n}", id=f"id-{n}", timeout_s=60)
            for n in range(300)
        ]
        while sum(each.done() for each in asked) < 60:
            time.sleep(0.01)
        victim = next(c for c in group.status().consumers if c.pid is not None)
        os.kill(victim.pid or -1, signal.SIGKILL)
        assert [each.result().payload for each in asked] == [b"M%d" % n for n in range(300)]
        # Asked again under an id of before, it is what was replied then.
        assert replies.ask("k1", "another", id="id-7", timeout_s=30).payload == b"M7"
        with pytest.raises(HandlerError, match="cannot do that"):
            replies.ask("k1", "bad", timeout_s=30)
        began_s = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"no reply to 'quiet' of q in 0\.5 s"):
            replies.ask("k1", "silent", id="quiet", timeout_s=0.5)
        assert time.monotonic() - began_s < 5

    # In another process, by the id alone; also of one that comes later.
    @ray.remote(num_cpus=0)  # type: ignore[untyped-decorator]
    def elsewhere(name: str, ids: list[str]) -> list[bytes]:
        found = attach(name).replies("q")
        return [found.wait(each, 30).payload for each in ids]

    task = elsewhere.remote(topology.name, ["id-3", "later"])
    with topology.producer("q") as producer:
        producer.send("k2", "in time", id="later")
        assert ray.get(task, timeout=60) == [b"M3", b"IN TIME"]


def test_async_handlers_reply_and_a_queue_without_replies_says_how_it_would(stage: Stage) -> None:
    queues = {"q": QueueConfig(partitions=1, replies=True), "plain": QueueConfig(partitions=1)}
    topology = stage.deploy(queues=queues)
    topology.group("g", queue="q").start(answer_async)
    with topology.replies("q") as replies:
        assert replies.ask("k", "hello", timeout_s=30).payload == b"HELLO"
    with pytest.raises(UsageError, match="replies = true"):
        topology.replies("plain")


def test_who_polls_replies_too(stage: Stage) -> None:
    topology = stage.deploy(queues={"q": QueueConfig(partitions=2, replies=True)})
    group = topology.group("g", queue="q")
    replies = topology.replies("q")
    with group.consumer() as consumer, replies, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(replies.ask, "k", "hello", timeout_s=30)
        end_s = time.monotonic() + 30
        while not asked.done() and time.monotonic() < end_s:
            for message in consumer.poll(0.2) or ():
                message.reply(message.payload.upper())
        assert asked.result().payload == b"HELLO"


def test_who_waits_hears_at_once_of_a_quarantine_and_of_a_halt(stage: Stage) -> None:
    queue = QueueConfig(partitions=1, replies=True)
    topology = stage.deploy(queues={"aside": queue, "halts": queue})
    aside = {"failure_policy": "quarantine", "processing": ByKey(parallelism=4)}
    topology.group("a", queue="aside", **aside, **QUICK).start(answer)
    topology.group("h", queue="halts", failure_policy="stop", **QUICK).start(answer)
    with topology.replies("aside") as replies:
        with pytest.raises(HandlerError, match=r"in quarantine: .*cannot do that"):
            replies.ask("k", "bad", timeout_s=60)
        with pytest.raises(HandlerError, match="in quarantine: an earlier message of its key"):
            replies.ask("k", "good", timeout_s=60)
    with topology.replies("halts") as replies:
        for payload in ("bad", "good"):
            with pytest.raises(HandlerError, match=r"group h is halted at P0 offset 0: .*cannot"):
                replies.ask("k", payload, timeout_s=60)


def test_who_knows_an_id_alone_hears_of_a_halt_too(stage: Stage) -> None:
    queue = QueueConfig(partitions=4, replies=True)
    topology = stage.deploy(queues={"q": queue})
    group = topology.group("h", queue="q", failure_policy="stop", **QUICK).start(answer)
    with topology.producer("q") as producer:  # whoever it is that sends
        at = producer.send("k", "bad", id="id-bad").result(30)
        for n in range(500):
            producer.send("k", f"m{n}", id=f"id-{n}")
        producer.flush()
    told = rf"group h is halted at P{at.partition} offset 0: .*cannot"
    with topology.replies("q") as replies, ThreadPoolExecutor(8) as threads:
        began_s = time.monotonic()
        waits = [threads.submit(replies.wait, f"id-{n}", 60) for n in ("bad", 0, 7, 499)]
        for wait in waits:
            with pytest.raises(HandlerError, match=told):
                wait.result()
        assert time.monotonic() - began_s < 40
        other = next(f"o{n}" for n in range(99) if goes_elsewhere(topology, f"o{n}", at.partition))
        assert replies.ask(other, "well", timeout_s=30).payload == b"WELL", "others go on"
        with pytest.raises(DeadlineExceeded):  # nobody has sent it
            replies.wait("id-500", 8)
        # Somebody acts: who waits again has its reply.
        group.seek(1, partitions=[at.partition])
        assert replies.wait("id-499", 30).payload == b"M499"


def goes_elsewhere(topology: Topology, key: str, partition: int) -> bool:
    """Whether a key belongs to another partition."""
    config = topology.config.resolved_queue("q")
    return config.spread().partitioner().partition(key) != partition
