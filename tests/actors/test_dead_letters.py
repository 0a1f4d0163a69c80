"""What a group has given up is sent again in order, as it was, once; or dropped."""

from __future__ import annotations

import pytest

from pxrs_ray.actors.client.group_dead_letters import RETRIED
from pxrs_ray.errors import NotFound, UsageError
from tests.actors.conftest import Stage
from tests.actors.recording import Failing, Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

QUICK = {"backoff_ms": 10, "backoff_ms_max": 20, "commit_interval_ms": 20}
BAD = {"m1": -1, "m2": -1, "m4": -1, "m7": -1}


def test_letters_are_listed_sent_again_in_order_and_dropped(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    group = topology.group("g", queue="q", attempts_max=2, failure_policy="dead_letter", **QUICK)
    letters = group.dead_letters
    with pytest.raises(NotFound, match="no letter of g waits"):
        letters.retry(every=True)
    with topology.producer("q") as producer:
        for n in range(10):
            key = "even" if n % 2 == 0 else "odd"
            producer.send(key, f"m{n}", {"trace": str(n).encode()}, 1_000 + n, f"id-{n}")
    group.start(Failing(stage.notes, BAD))
    eventually(lambda: group.lag() == 0)
    found = letters.list()
    assert sorted(letter.message.payload for letter in found) == [b"m1", b"m2", b"m4", b"m7"]
    assert "cannot do m7" in repr(found) and all(letter.attempts == 2 for letter in found)
    odd = letters.list(key="odd")
    assert [letter.message.payload for letter in odd] == [b"m1", b"m7"], "in order"
    assert len(letters.list(limit=1)) == 1
    first = odd[0]
    assert letters.at((first.partition, first.offset)) == first

    # Whoever handles them now is told of the same messages, behind what came meanwhile.
    group.start(Recorder(stage.notes))
    seen = topology.group("look", queue="q")
    with seen.consumer() as consumer:
        eventually(lambda: sum(len(b) for b in iter(lambda: consumer.poll(0.2), None)) == 10)
        consumer.commit()
        assert letters.retry(key="odd") == 2
        again = []
        eventually(lambda: again.extend(consumer.poll(0.5) or ()) or len(again) == 2)
        assert [message.payload for message in again] == [b"m1", b"m7"]
        message = again[0]
        assert (message.key, message.timestamp_ms, message.id) == (b"odd", 1_001, "id-1")
        assert message.headers[0] == ("trace", b"1")
        assert message.partition == first.failed_partition
        assert message.headers[1][0] == RETRIED and len(message.headers) == 2
        consumer.commit()
    eventually(lambda: {"m1", "m7"} <= set(stage.notebook.payloads()))
    assert {letter.message.payload for letter in letters.list()} == {b"m2", b"m4"}

    # What was settled is settled for whoever comes next, and a place is named once.
    with pytest.raises(NotFound, match=f"P{first.partition}@{first.offset} of g waits"):
        letters.retry(places=[(first.partition, first.offset)])
    left = letters.list()[0]
    assert letters.drop(places=[(left.partition, left.offset)]) == 1
    assert letters.drop(every=True) == 1 and letters.list() == ()
    assert "nothing" not in repr(letters.list())


def test_a_retry_that_was_cut_off_sends_nothing_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group("g", queue="q", attempts_max=1, failure_policy="dead_letter", **QUICK)
    with topology.producer("q") as producer:
        for n in range(8):
            producer.send("k", f"m{n}")
    group.start(Failing(stage.notes, BAD))
    eventually(lambda: group.lag() == 0)
    group.start(Recorder(stage.notes))
    letters = group.dead_letters
    with monkeypatch.context() as patch:
        patch.setattr(letters, "_keep", lambda *given: None)  # killed before it could note it
        assert letters.retry(every=True) == 4
    assert len(letters.list()) == 4, "nobody noted it"
    assert letters.retry(every=True) == 4
    eventually(lambda: group.lag() == 0)
    after = stage.notebook.payloads()
    assert [after.count(name) for name in ("m1", "m2", "m4", "m7")] == [1, 1, 1, 1]
    assert group.status().partitions[0].end_offset == 12


def test_only_a_group_that_sends_letters_has_some(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group("g", queue="q")
    with pytest.raises(UsageError, match="failure_policy = 'stop': only 'dead_letter'"):
        group.dead_letters.list()
    with pytest.raises(UsageError, match="by their key, by their places, or every one"):
        group.dead_letters.retry(key="a", every=True)


def test_a_purge_drops_what_there_is_and_groups_go_on_behind_it(stage: Stage) -> None:
    topology = stage.deploy(partitions=2)
    with topology.producer("q") as producer:
        for n in range(20):
            producer.send(f"k{n}", f"m{n}")
    group = topology.group("g", queue="q", **QUICK)
    group.start(Recorder(stage.notes))
    eventually(lambda: group.lag() == 0)
    group.pause()
    late = topology.group("late", queue="q")
    assert late.lag() == 20
    with topology.producer("q") as producer:
        for n in range(20, 30):
            producer.send(f"k{n}", f"m{n}")
    removal = topology.purge_queue("q")
    assert removal.numbers["messages"] == 30
    assert "group late, which has 30 of them before it" in " ".join(removal.goes)
    assert group.lag() == 0 and late.lag() == 0, "what is gone is no lag"
    group.resume()
    with topology.producer("q") as producer:
        for n in range(30, 34):
            producer.send(f"k{n}", f"m{n}")
    eventually(lambda: set(stage.notebook.payloads()) >= {f"m{n}" for n in range(30, 34)})
    eventually(lambda: group.lag() == 0)
    assert not {f"m{n}" for n in range(20, 30)} & set(stage.notebook.payloads())
    assert late.lag() == 4
    late.start(Recorder(stage.notes))
    eventually(lambda: late.lag() == 0)
    assert "PROBLEM" not in repr(topology.status())
    with pytest.raises(NotFound, match="partitions 0 to 1, not 7"):
        topology.purge_queue("q", [7])


def test_a_pulling_consumer_commits_a_part_of_what_it_took(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    with topology.producer("q") as producer:
        producer.send_batch(["k"] * 10, [f"m{n}" for n in range(10)])
    group = topology.group("g", queue="q")
    with group.consumer() as consumer:
        batch = eventually(lambda: consumer.poll(1.0))
        assert len(batch) == 10
        consumer.commit({0: 3})
        consumer.commit({0: 2})  # never back
        assert group.status().partitions[0].checkpoint == 3
        consumer.commit({0: 99, 5: 1})  # never beyond what was taken; nor what is not ours
        assert group.status().partitions[0].checkpoint == 10
