"""Links between hosts: used, cut, healed, switched off; nothing is lost or out of order."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.hosts.conftest import Cluster
from tests.hosts.host import PYTHON
from tests.hosts.world import World

# Longer than a link lives without a sign (five seconds), shorter than Ray waits for a node (nine).
CUT_S = 6.5
PORTS = "21000-21010"

_LISTENING = """
import sys
for line in open('/proc/net/tcp').read().splitlines()[1:]:
    local, state = line.split()[1], line.split()[3]
    if state == '0A':
        address, port = local.split(':')
        print('.'.join(str(byte) for byte in bytes.fromhex(address)[::-1]), int(port, 16))
"""


@pytest.fixture
def world(lend_world: Callable[..., World]) -> World:
    """At work, with links through few ports."""
    return lend_world(link_ports=PORTS)


def linked(world: World, calls: int = 20) -> None:
    """Wait until calls come over links, from now on."""
    before = world.link_calls()
    world.until(lambda: world.link_calls() >= before + calls, 40, "calls over links")


def listening(cluster: Cluster, index: int) -> set[tuple[str, int]]:
    """Every address and port on which a host listens, as its kernel knows them."""
    told = cluster.hosts[index].run([PYTHON, "-c", _LISTENING]).stdout
    return {(line.split()[0], int(line.split()[1])) for line in told.splitlines()}


def judged(world: World) -> None:
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_hosts_talk_over_links_on_their_rays_address_alone(
    world: World, shared_cluster: Cluster
) -> None:
    hosts = shared_cluster.hosts
    with world.load(0, 1, 2):
        linked(world, 100)
        assert world.links() >= len(hosts), "producers and consumers of each other host"
        for index, host in enumerate(hosts):
            found = {
                where for where in listening(shared_cluster, index) if 21_000 <= where[1] <= 21_010
            }
            assert found and {address for address, _ in found} == {host.address}
    judged(world)


def test_a_cut_link_falls_back_and_heals(world: World, shared_cluster: Cluster) -> None:
    """Cut between two hosts alone: Ray's head still sees both, and nobody's lease ends."""
    hosts = shared_cluster.hosts
    one, other = 1, 2
    with world.load(one, other):
        linked(world)
        for _ in range(2):
            hosts.cut(one, others=[other])
            time.sleep(CUT_S)
            hosts.heal()
            healed_s = time.monotonic()
            mine = world.partitions_of(one) | world.partitions_of(other)
            world.until(lambda: mine <= world.handled_since(healed_s), 60, "work")  # noqa: B023
            linked(world)
    judged(world)


def test_a_buffer_that_is_killed_is_linked_again(world: World) -> None:
    with world.load(0, 1):
        linked(world)
        for name in [name for name in world.homes() if name.startswith("buffer/")]:
            _, pid = world.kill_actor(name)
            world.wait_back(name, pid)
        linked(world)
    judged(world)


def test_links_are_switched_off_and_on_while_messages_flow(world: World) -> None:
    with world.load(0, 1, 2):
        linked(world)
        world.set_link_ports("off")
        world.until(lambda: world.links() == 0, 20, "the end of all links")
        calls, off_s = world.link_calls(), time.monotonic()
        every = set(range(world.partitions))
        world.until(lambda: every <= world.handled_since(off_s), 20, "work through Ray")
        assert world.link_calls() == calls
        world.set_link_ports("any")
        linked(world)
    judged(world)
