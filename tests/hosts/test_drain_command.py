"""`pxrs plan --drain` and `pxrs drain NODE` on hosts with disks of their own: told, then done."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.hosts.conftest import Cluster
from tests.hosts.host import PYTHON, Host

DEADLINE_S = 60


def pxrs(host: Host, *arguments: str, seconds: float = 60) -> tuple[int, str]:
    """A command in a terminal of a host; what it says."""
    ran = host.run([PYTHON, "-m", "pxrs_ray", *arguments], seconds, check=False)
    return ran.returncode, ran.stdout


def told(host: Host, *arguments: str) -> Any:
    """What a command that must succeed answers in JSON."""
    status, out = pxrs(host, *arguments, "--json")
    assert status == 0, out
    return json.loads(out[out.index("{") if out.lstrip()[:1] != "[" else out.index("[") :])


def test_a_host_is_drained_by_command_and_goes_with_nothing_on_it(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    world.start(consumers=2)
    world.settled(2)
    desk, going = hosts[0], world.one_to_lose()
    address, there = hosts[going].address, world.partitions_of(going)
    places = told(desk, "status", "-t", world.name)["places"]
    assert sorted(p["host"] for p in places) == sorted(host.address for host in hosts)
    assert len({p["disk"] for p in places}) == len(places)
    assert all(p["state"] == "at home" and p["free_bytes"] > 0 for p in places)
    # The registry is a file on the desk's host, which is Ray's head as well.
    status, out = pxrs(desk, "drain", desk.address, "-t", world.name)
    assert status == 1 and "is the head of this Ray cluster" in out
    with world.load(0):
        world.until(lambda: len(world.handled()) > 60, 30, "work")
        plans = told(desk, "plan", "--drain", address, "--deadline", str(DEADLINE_S))
        (plan,) = [each for each in plans if each["topology"] == world.name]
        assert plan["cannot"] == [] and {m["source"] for m in plan["moves"]} == {address}
        assert all(m["bytes"] > 0 and m["written_per_s"] > 0 for m in plan["moves"])
        status, out = pxrs(
            *(desk, "drain", address, "--deadline", str(DEADLINE_S), "-t", world.name),
            seconds=DEADLINE_S + 30,
        )
        assert status == 0 and "has no consumer and no log any more" in out, out
        hosts.power_off(going)
        gone_s = time.monotonic()
        world.until(lambda: there <= world.handled_since(gone_s), 10, "its partitions go on")
    after = told(desk, "status", "-t", world.name)["places"]
    assert address not in {p["host"] for p in after}
    assert {p["state"] for p in after} == {"at home"}
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
