"""A move of a buffer that is cut off at any moment loses nothing, and leaves one place that serves.

Rules of this file. Who does the move, who gives the logs and who takes them dies in turn, some
tenths of a second later each time: while logs are copied, while the buffer stops, while the copy is
installed, while the old disk is emptied. Whoever asked for the move learns what became of it.
"""

from __future__ import annotations

import os
import time

from tests.hosts.conftest import COUNT, Cluster
from tests.hosts.world import World

BACK_S = 15
TOLD_S = 50
# A move of little takes 1.5 to 5 s.
AFTER_S = (0.9, 1.6, 0.3, 2.4, 0.6, 1.2, 2.0, 3.0)
TIMES = int(os.environ.get("HOSTS_CUTS", "4"))


def begin_move(world: World) -> tuple[int, int, int]:
    """Have a buffer go that is not with the coordinator, to where the coordinator is not either;
    answer its number, its host and the host that it goes to."""
    homes = world.homes()
    hosts = range(COUNT)
    slot = next(s for s in hosts if homes[f"buffer/{s}"] != homes["coordinator"])
    there = homes[f"buffer/{slot}"]
    target = next(h for h in hosts if h not in (there, homes["coordinator"]))
    address = world.hosts[target].address
    world.desk("begin_move", name=world.name, buffer=slot, node=address)
    return slot, there, target


def kill_mover(world: World, slot: int, target: int) -> None:
    _, pid = world.kill_actor("coordinator")
    world.wait_back("coordinator", pid, BACK_S)


def kill_source(world: World, slot: int, target: int) -> None:
    if f"buffer/{slot}" in world.actors():  # it has ended where it was, otherwise
        world.kill_actor(f"buffer/{slot}")


def kill_receiver(world: World, slot: int, target: int) -> None:
    for pid in world.hosts[target].find("ray::LogReceiver"):
        world.hosts[target].kill(pid)


def cut_target(world: World, slot: int, target: int) -> None:
    world.hosts.power_off(target)
    world.hosts.power_on(target)
    world.hosts.ray_again(target)


CUTS = (kill_mover, kill_source, kill_receiver, cut_target)


def test_a_move_is_cut_off(cluster: Cluster) -> None:
    world = cluster.world(registry_at=cluster.hosts[0].address)
    world.start()
    world.settled()
    told = []
    every = set(range(world.partitions))
    with world.load(0):
        for number in range(TIMES):
            cut, begun_s = CUTS[number % len(CUTS)], time.monotonic()
            world.until(lambda: every <= world.handled_since(begun_s), 20, "work")  # noqa: B023
            slot, there, target = begin_move(world)
            time.sleep(AFTER_S[(number + number // len(CUTS)) % len(AFTER_S)])
            cut(world, slot, target)
            told.append(world.desk("end_move", TOLD_S + 5, name=world.name, wait_s=TOLD_S))
            cut_s = time.monotonic()
            world.until(lambda: every <= world.handled_since(cut_s), 20, "work goes on")  # noqa: B023
            assert world.homes()[f"buffer/{slot}"] in (there, target), told
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{told}\n{world.told()}"
