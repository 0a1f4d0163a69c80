"""Hosts for the tests: one cluster of three that the tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hosts import kernel
from tests.hosts.hosts import Hosts
from tests.hosts.world import Desk, World

COUNT = 3
# In memory: what is asked here is where data are, not how fast a disk is; and it can be filled.
DISK_BYTES = 400 << 20


class Cluster:
    """Three hosts with Ray. A test that breaks it leaves it to `mend`, which the next one calls."""

    def __init__(self) -> None:
        self.hosts = Hosts(COUNT, disk_bytes=DISK_BYTES)
        self._desk: Desk | None = None
        self.worlds: list[World] = []
        try:
            self.hosts.start_ray()
        except BaseException:
            self.hosts.close()
            raise

    @property
    def desk(self) -> Desk:
        """A driver on the head."""
        if self._desk is None or not self._desk.is_open:
            if self._desk is not None:
                self._desk.close()
            self._desk = Desk(self.hosts[0])
        return self._desk

    def world(self, **options: Any) -> World:
        """A topology of its own, deployed."""
        world = World(self.hosts, self.desk, **options)
        self.worlds.append(world)
        return world.deploy()

    def close(self) -> None:
        """Take it all away."""
        if self._desk is not None:
            self._desk.close()
        self.hosts.close()

    def ray_everywhere(self) -> None:
        """Have a node of Ray on every host, also where Ray took one for dead."""
        self.hosts.ray_where_missing()
        known = self.desk("nodes")
        for host in self.hosts:
            if host.address not in known:
                host.stop_ray()
                self.hosts.ray_again(host.index)

    def mend(self) -> None:
        """Heal, thaw, bring back and clean up."""
        self.hosts.heal()
        for host in self.hosts:
            if host.is_on:
                host.thaw()
                host.free_disk()
        for index in range(COUNT):
            if not self.hosts[index].is_on:
                self.hosts.power_on(index)
        self.ray_everywhere()
        for world in self.worlds:
            world.desk = self.desk
            world.close()
        self.worlds.clear()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """Started once: it takes a while."""
    kernel.require_hosts()
    cluster = Cluster()
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, whole again after the test."""
    yield shared_cluster
    shared_cluster.mend()


@pytest.fixture(scope="module")
def lend_world(shared_cluster: Cluster) -> Iterator[Callable[..., World]]:
    """Answers one world that the tests of a module have one after the other, for they leave it
    whole: with its consumers at work, unless `started` is no. What is not whole is replaced."""
    lent: list[World] = []

    def lend(*, started: bool = True, **options: Any) -> World:
        if lent:
            lent[0].desk = shared_cluster.desk
            if _is_whole(lent[0]):
                return lent[0]
            shared_cluster.mend()
            lent.clear()
        lent.append(shared_cluster.world(**options))
        if started:
            lent[0].start()
            lent[0].settled()
        return lent[0]

    try:
        yield lend
    finally:
        shared_cluster.mend()


def _is_whole(world: World) -> bool:
    try:
        world.settled()
    except TimeoutError:
        return False
    return True


@pytest.fixture
def bare_hosts() -> Iterator[Callable[..., Hosts]]:
    """Makes hosts without Ray, for a test that starts it itself, or needs none."""
    kernel.require_hosts()
    made: list[Hosts] = []

    def make(count: int, **given: Any) -> Hosts:
        made.append(Hosts(count, **given))
        return made[-1]

    try:
        yield make
    finally:
        for hosts in made:
            hosts.close()
