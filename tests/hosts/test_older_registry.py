"""The registry's host is restored from a backup, which does not know where a buffer is at home."""

from __future__ import annotations

from tests.hosts.conftest import Cluster
from tests.hosts.host import PYTHON
from tests.hosts.world import World

NOTICED_S = 20
# In the folder of a topology, on the host of its registry: the registry, and its note of it.
_KEEP = """
import pathlib, shutil, sqlite3, sys
folder, kept = map(pathlib.Path, sys.argv[1:])
kept.mkdir()
shutil.copy(folder / "registry-high-water.json", kept)
with sqlite3.connect(folder / "registry.db") as source:
    with sqlite3.connect(kept / "registry.db") as target:
        source.backup(target)
"""
_RESTORE = """
import pathlib, shutil, sys
folder, kept = map(pathlib.Path, sys.argv[1:])
for name in ("registry.db", "registry.db-wal", "registry.db-shm"):
    (folder / name).unlink(missing_ok=True)
for each in kept.iterdir():
    shutil.copy(each, folder / each.name)
"""


def test_the_registry_forgets_where_a_buffer_is_at_home(cluster: Cluster) -> None:
    """What was acknowledged there is waited for, and not continued by an older copy."""
    hosts, goes_on = cluster.hosts, {"lost_log_policy": "continue"}
    world = cluster.world(registry_at=hosts[0].address, queue=goes_on)
    world.start()
    world.settled()
    world.send(0, 60)
    world.rest()
    _with_registry(world, _KEEP)
    going = world.one_to_lose()
    there = world.partitions_of(going)
    slot = min(there) % len(hosts)
    hosts.power_off(going)
    away = f"waits for host {hosts[going].address}"
    world.until(lambda: away in world.told(), NOTICED_S, "it is waited for")
    world.desk("accept_buffer_loss", name=world.name, buffer=slot)
    world.until(lambda: f"buffer/{slot}" in world.homes(), NOTICED_S, "it is elsewhere")
    home = world.homes()[f"buffer/{slot}"]
    world.send(0, 60)
    newer = world.acknowledged()[-60:]
    assert {ack.partition for ack in newer} & there
    hosts.power_on(going)
    hosts.ray_again(going)
    _with_registry(world, _RESTORE)
    _, pid = world.kill_actor("coordinator")
    world.wait_back("coordinator", pid)
    world.until(lambda: "went back" in world.told(), NOTICED_S, "that is told")
    world.recover_registry()
    world.until(lambda: world.homes().get(f"buffer/{slot}") == home, NOTICED_S, "it is at home")
    world.settled()
    world.send(0, 60)
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def _with_registry(world: World, script: str) -> None:
    hosts = world.hosts
    folder = hosts.data / world.name
    hosts[0].run([PYTHON, "-c", script, str(folder), str(folder.with_name(f"{world.name}-kept"))])
