"""What the page shows of messages, dead letters and a quarantine, on real logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray import PxrsConfig, QueueConfig, Topology, deploy
from pxrs_ray.cli._page_source import RaySource
from pxrs_ray.errors import NotFound, PxrsError, UsageError
from tests.cli.desk import until

pytestmark = pytest.mark.ray

DEAD, ASIDE = "eu.dead", "eu.aside"


def refuse_bad(message: Any) -> None:
    if message.payload.startswith(b"bad"):
        raise ValueError("no")


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """Two groups, of which one has dead letters and one a quarantine, each of three messages."""
    import ray

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    config = PxrsConfig(
        name="source",
        prefix="eu",
        store="memory:",
        buffers=1,
        data_dir=tmp_path_factory.mktemp("data"),
        queues={"orders": QueueConfig(partitions=2)},
    )
    made = deploy(config)
    options = {"queue": "orders", "attempts_max": 1, "processing": "by_key"}
    for name, policy in ((DEAD, "dead_letter"), (ASIDE, "quarantine")):
        group = made.group(name.removeprefix("eu."), failure_policy=policy, **options)
        group.start(refuse_bad, consumers=1)
    with made.producer("orders") as producer:
        for number in range(3):
            producer.send(f"k{number}", f"bad {number}", headers={"trace": "7"})
        producer.send("k0", "fine")
    until(lambda: not sum(group.lag for group in made.status().groups))
    yield made
    made.delete()
    ray.shutdown()


def test_messages_are_found_and_sent(topology: Topology) -> None:
    source = RaySource(topology)
    found = source.messages("orders", {"grep": "fine"})
    assert [(m["key"], m["payload"], m["headers"]) for m in found] == [("k0", "fine", {})]
    assert len(source.messages("orders", {"from": "start"})) >= 4
    newest = [m["at_ms"] for m in source.messages("orders", {})]
    assert len(newest) >= 4 and newest == sorted(newest, reverse=True)
    told = source.act("produce", "orders", {"key": "new", "payload": "one more"})
    assert told.startswith("the message is in orders, P")
    assert [m["payload"] for m in source.messages("orders", {"key": "new"})] == ["one more"]


def test_keys_in_quarantine_and_messages_given_up_are_told_by_the_status(
    topology: Topology,
) -> None:
    groups = {group.group: group for group in topology.status().groups}
    aside, dead = groups[ASIDE], groups[DEAD]
    assert (aside.aside.keys, aside.aside.messages) == (3, 4) and dead.aside.keys == 0
    assert dead.given_up_count == 3 and all(each.ago_s < 600 for each in dead.given_up)
    kinds = {str(found.kind): found.text for found in topology.status().problems}
    assert "3 keys are in quarantine, 4 messages wait" in kinds["keys_aside"]
    assert "3 messages failed for good" in kinds["messages_given_up"]
    shown = str(topology.status())
    assert "keys in quarantine" in shown and "messages given up" in shown


def test_the_coordinator_has_kept_what_was_before_the_page(topology: Topology) -> None:
    until(lambda: bool(RaySource(topology).past()))
    past = RaySource(topology).past()
    assert set(past) == {group.group for group in topology.status().groups}
    assert all(point["lag"] >= 0 and point["at_ms"] > 0 for point in past[DEAD])


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"grep": "("}, UsageError, "no regular expression"),
        ({"partition": "x"}, UsageError, "written P3"),
        ({"partition": "P9"}, NotFound, "has partitions 0 to 1, not 9"),
        ({"from": "yesterday"}, UsageError, "a time is written"),
    ],
)
def test_what_nobody_can_look_for_is_told(
    topology: Topology, asked: dict[str, str], error: type[PxrsError], words: str
) -> None:
    with pytest.raises(error, match=words):
        RaySource(topology).messages("orders", asked)


def test_a_seek_says_first_what_it_does(topology: Topology) -> None:
    source = RaySource(topology)
    place = {"to": "start", "partition": "P1"}
    told = source.act("plan_seek", DEAD, place)
    assert told.startswith("Move P1 of eu.dead to start? ") and "0 are skipped" in told
    for wrong in ({"to": ""}, {"to": "start", "partition": "x"}, [1], "yesterday"):
        with pytest.raises(UsageError):
            source.act("plan_seek", DEAD, wrong)


def test_what_was_given_up_is_shown_and_dealt_with(topology: Topology, tmp_path: Path) -> None:
    source = RaySource(topology)
    letters = source.aside(DEAD)["letters"]
    assert sorted(letter["payload"] for letter in letters) == ["bad 0", "bad 1", "bad 2"]
    assert letters[0]["headers"] == {"trace": "7"} and "ValueError" in letters[0]["error"]
    assert source.act("drop_letter", DEAD, letters[0]["place"]) == "1 dead letter was dropped"
    assert len(source.aside(DEAD)["letters"]) == 2
    keys = source.aside(ASIDE)["keys"]
    assert {(key["key"], key["messages"]) for key in keys} == {("k0", 2), ("k1", 1), ("k2", 1)}
    with pytest.raises(UsageError, match="only 'quarantine' puts messages aside"):
        source.act("retry_keys", DEAD, None)
    assert source.act("retry_letters", DEAD, None) == "2 dead letters were sent again"
