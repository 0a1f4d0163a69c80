"""What is known of replies: the first counts, errors are raised, and a test topology has them."""

from __future__ import annotations

import pytest

from pxrs_ray import Delivery, GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.data.reply import RepliesRead, Reply, error_header
from pxrs_ray.errors import ConfigError, HandlerError, UsageError
from pxrs_ray.model import Message
from pxrs_ray.status.answers import GroupStatus, PartitionStatus
from pxrs_ray.status.halts import HaltedMessages, halt_before, halted_from
from pxrs_ray.testing import TestTopology


def reply(name: bytes | None, payload: bytes, *headers: tuple[str, bytes]) -> Message:
    return Message(0, 0, name, payload, 5, headers)


def test_the_first_reply_counts_and_the_newest_are_remembered() -> None:
    read = RepliesRead(2)
    read.take([reply(b"a", b"1"), reply(None, b"nobody's"), reply(b"a", b"2")])
    assert read.to("a") == Reply(b"1", (), 5) and read.to("b") is None
    read.take([reply(b"b", b"3", ("x", b"y"))])
    assert not read.has_forgotten
    read.take([reply(b"c", b"4")])
    assert read.has_forgotten and read.to("a") is None
    found = read.to("b")
    assert found is not None and found.sound().headers == (("x", b"y"),)


def test_what_was_given_up_is_an_error_for_who_waits() -> None:
    read = RepliesRead()
    read.take([reply(b"a", b"", ("x", b"y"), error_header("no\ud800 way" * 1_000))])
    found = read.to("a")
    assert found is not None and found.headers == (("x", b"y"),)
    with pytest.raises(HandlerError, match=r"given up.*way"):
        found.sound()


def test_a_test_topology_keeps_the_first_reply() -> None:
    queues = {"q": QueueConfig(partitions=1, replies=True), "plain": QueueConfig(partitions=1)}
    skips = GroupConfig(queue="q", failure_policy="skip", attempts_max=1)
    groups = {"g": skips, "p": GroupConfig(queue="plain")}

    def handle(message: Delivery) -> None:
        message.reply(message.payload.upper(), {"n": b"1"})
        message.reply("again")

    with TestTopology(PxrsConfig(queues=queues, groups=groups)) as topology:
        topology.group("g", handle).group("p", handle)
        topology.send("q", "k", b"m", id="a")
        topology.send("q", "k", b"nameless")
        assert topology.reply_to("q", "a") is None
        topology.run_until_idle()
        found = topology.reply_to("q", "a")
        assert found is not None and (found.payload, found.headers) == (b"M", (("n", b"1"),))
        assert "with an id can be replied to" in topology.given_up("g")[0].error
        topology.send("plain", "k", b"m", id="a")
        with pytest.raises(UsageError, match="replies = true"):
            topology.run_until_idle(fail_fast=True)


def test_what_cannot_have_replies_says_so() -> None:
    with pytest.raises(ConfigError, match="replies = true: not of use with a source"):
        PxrsConfig(queues={"q": QueueConfig(replies=True, source="file:///x?key=k")})
    made = PxrsConfig(queues={"q": QueueConfig(replies=True, partitions=3, strategy="tenant")})
    kept = made.changed(num_partitions=5).queues["q.replies"]
    assert (kept.partitions, kept.strategy, kept.retention_ms) == (3, "modulo", 86_400_000)


def test_a_message_that_is_put_aside_has_an_error_for_now_and_its_reply_later() -> None:
    read = RepliesRead()
    read.take([reply(b"a", b"", error_header("cannot do that", for_now=True))])
    found = read.to("a")
    assert found is not None
    with pytest.raises(HandlerError, match="in quarantine: cannot do that"):
        found.sound()
    read.take([reply(b"a", b"at last"), reply(b"a", b"", error_header("too late"))])
    found = read.to("a")
    assert found is not None and found.sound().payload == b"at last"


def halted(group: str, queue: str, problem: str, *partitions: PartitionStatus) -> GroupStatus:
    return GroupStatus("t", group, queue, 1, 1, "", False, 1, partitions, (), problem)


def partition(number: int, checkpoint: int, problem: str = "") -> PartitionStatus:
    return PartitionStatus(
        number, "owned", "m", 1, checkpoint, 90, 90, 0, attempts=3, problem=problem
    )


def test_who_waits_hears_of_a_halt_before_the_message_and_of_no_other() -> None:
    stuck = halted("g", "q", "", partition(0, 5, "ValueError: no"), partition(1, 5))
    assert "halted at P0 offset 5: ValueError: no" in str(halt_before([stuck], "q", 0, 7))
    assert halt_before([stuck], "q", 0, 4) is None, "it was passed"
    assert halt_before([stuck], "q", 1, 7) is None
    assert halt_before([stuck], "r", 0, 7) is None
    well = halted("other", "q", "", partition(0, 5))
    assert halt_before([stuck, well], "q", 0, 7) is None, "another group may reply"
    whole = halted("g", "q", "its registry contradicts itself")
    assert "contradicts" in str(halt_before([whole], "q", 3, None))


def named(at: int, *names: str | None) -> list[Message]:
    """Messages from there on, with these ids."""
    return [Message(0, at + n, b"k", b"m", 5, (), name) for n, name in enumerate(names)]


def test_where_all_groups_of_a_queue_are_halted_is_from_where_the_last_of_them_is() -> None:
    first = halted("g", "q", "", partition(0, 5, "no"), partition(1, 5, "no"), partition(2, 5))
    second = halted("h", "q", "", partition(0, 9, "no"), partition(1, 5), partition(2, 1, "no"))
    whole = halted("i", "q", "its registry contradicts itself", partition(0, 7), partition(1, 3))
    assert halted_from([first], "q") == {0: 5, 1: 5}
    assert halted_from([first, second], "q") == {0: 9}, "one of them comes to the others"
    assert halted_from([first, whole], "q") == {0: 7, 1: 5}
    assert halted_from([first, whole], "r") == {}


def test_what_stands_behind_a_halt_is_found_by_its_id_and_read_once() -> None:
    behind = HaltedMessages()
    behind.look({0: 5, 3: 0})
    assert behind.next() == (0, 5)
    behind.take(0, named(5, "a", None, "b"), 8)
    assert behind.read_after(0, 5) == (0, 8)
    assert behind.read_after(0, 8) == (3, 0), "nothing more is there, or it cannot be read"
    assert behind.read_after(3, 0) is None
    assert (behind.place_of("a"), behind.place_of("b")) == ((0, 5), (0, 7))
    assert behind.place_of("c") is None
    behind.look({0: 5})
    assert behind.next() == (0, 8), "it goes on where it was"
    behind.take(3, named(0, "c"), 1)
    assert behind.place_of("c") is None, "it is halted no more"
    behind.look({0: 7})
    assert behind.next() == (0, 7) and behind.place_of("b") is None, "somebody has acted"
    behind.look({})
    assert behind.next() is None and behind.read_after(0, 7) is None


def test_what_is_remembered_of_a_halt_is_bounded() -> None:
    behind = HaltedMessages(2)
    behind.look({0: 0, 1: 0})
    behind.take(0, named(0, "a", "b"), 2)
    assert behind.read_after(0, 0) is None and behind.place_of("b") == (0, 1)
