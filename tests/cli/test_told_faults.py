"""Faults on a real topology, each seen where people look: status, live page, metrics' source."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray import PxrsConfig, QueueConfig, Topology, deploy
from pxrs_ray.cli._page_source import RaySource
from pxrs_ray.dashboard.page_state import Story
from pxrs_ray.status import problems
from pxrs_ray.status.problem import Kind
from tests.cli.desk import until
from tests.servers import skip_or_fail

pytestmark = pytest.mark.ray

SMALL_BYTES, MESSAGE_BYTES = 400_000, 20_000


def hangs(message: Any) -> None:
    if message.payload == b"hang":
        time.sleep(3_600)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of its own, of two gigabytes that are used by nobody."""
    place = tmp_path_factory.mktemp("disk")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", str(place)])
    if made.returncode:
        skip_or_fail("no disk of its own can be mounted: run as root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="module")
def topology(disk: Path) -> Iterator[Topology]:
    """Two consumers of a queue, and one queue that is soon full and that nobody reads."""
    import ray

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    config = PxrsConfig(
        name="ill",
        buffers=1,
        data_dir=disk,
        queues={
            "orders": QueueConfig(partitions=2),
            "small": QueueConfig(
                partitions=1, partition_bytes_max=SMALL_BYTES, message_bytes_max=MESSAGE_BYTES
            ),
        },
    )
    made = deploy(config)
    made.group("billing", queue="orders").start(hangs, consumers=2)
    made.group("nobody", queue="small")
    until(lambda: not kinds_of(made))
    yield made
    made.delete()
    ray.shutdown()


def kinds_of(topology: Topology) -> dict[str, str]:
    """What is wrong, by kind."""
    return {found.kind: f"{found} ({found.remedy})" for found in topology.status().problems}


def shown(topology: Topology) -> dict[str, Any]:
    """What the live page shows."""
    return Story().tell(0, RaySource(topology).look())


def until_told(topology: Topology, kind: Kind) -> str:
    """Wait until status and page tell of it; answer how."""
    until(lambda: kind in kinds_of(topology))
    until(lambda: kind in {found["kind"] for found in shown(topology)["problems"]})
    return kinds_of(topology)[kind]


def test_a_consumer_that_is_frozen_is_not_told_as_one_that_is_slow(topology: Topology) -> None:
    victim = topology.group("billing").status().consumers[0]
    assert victim.pid
    os.kill(victim.pid, signal.SIGSTOP)
    try:
        told = until_told(topology, Kind.CONSUMER_FROZEN)
        assert f"frozen: pid {victim.pid} was stopped (SIGSTOP, a debugger)" in told
        assert f"`kill -CONT {victim.pid}`" in told and "pxrs restart billing/" in told
        assert "consumer frozen" in str(topology.status())
    finally:
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGCONT)
    until(lambda: not kinds_of(topology))


def test_appends_that_are_refused_are_told_with_the_reason(topology: Topology) -> None:
    with topology.producer("small") as producer:
        for _ in range(2 * SMALL_BYTES // MESSAGE_BYTES):
            producer.send("k", b"x" * MESSAGE_BYTES)
        told = until_told(topology, Kind.APPENDS_REFUSED)
        assert "the last one of P0 of small: PartitionFull(" in told
        assert topology.buffer_stats()[0].refused > 0
        assert shown(topology)["buffers"][0]["refused"] > 0
        topology.purge_queue("small")


def test_a_handler_that_hangs_is_told_with_its_message(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "CALL_LONG_S", 1.0)
    with topology.producer("orders") as producer:
        sent = producer.send("k", b"hang").result(20)
    told = until_told(topology, Kind.CALL_LONG)
    assert f"P{sent.partition}: in the same call since" in told
    assert f"message {sent.offset}, attempt 1, by billing-" in told
    (group,) = [each for each in shown(topology)["groups"] if each["group"] == "billing"]
    assert group["state"] == "long call" and group["tone"] == "warn"
    assert any(each["now"].startswith("in a call: P") for each in group["consumers"])
    severity, text = group["partitions"]["problem"][sent.partition]
    assert severity == "warning" and "in the same call" in text


def test_a_disk_is_told_of_before_it_is_full_and_when_it_is(topology: Topology, disk: Path) -> None:
    for size, kind in (("900m", Kind.DISK_FILLS), ("90m", Kind.DISK_FULL)):
        subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
        assert "left: appends are refused when it is full" in until_told(topology, kind)
    free = shown(topology)["buffers"][0]["free"]
    assert 0 < free < 100_000_000
    subprocess.run(["mount", "-o", "remount,size=2g", str(disk)], check=True)
    until(lambda: Kind.DISK_FULL not in kinds_of(topology))
