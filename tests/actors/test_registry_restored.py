"""On a real Ray: a registry that comes back from a backup ends, by the told command, in work."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pxrs_ray.actors.client.topology import deploy, recover_registry
from pxrs_ray.errors import StoreCorrupted
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = pytest.mark.ray


def test_a_registry_from_a_backup_is_accepted_and_the_group_works(
    stage: Stage, tmp_path: Path
) -> None:
    topology = stage.deploy(partitions=2)
    config = stage.config(partitions=2, name=topology.name)
    file, kept = config.topology_dir / "registry.db", tmp_path / "backup.db"
    group = topology.group("g", queue="q").start(Recorder(stage.notes), consumers=1)
    send(topology, 10)
    eventually(lambda: _committed(file, kept) == 10)
    for consumers in (2, 1, 2, 1):
        group.scale(consumers)
    send(topology, 10)
    eventually(lambda: group.lag() == 0)
    topology.shutdown()
    for old in config.topology_dir.glob("registry.db*"):
        old.unlink()
    shutil.move(kept, file)

    with pytest.raises(StoreCorrupted, match="pxrs recover registry FILE --accept-loss"):
        deploy(config)
    found = recover_registry(config, accept_loss=True)
    assert sum(found["g"].repeated.values()) == 10
    group = deploy(config).group("g").start(Recorder(stage.notes), consumers=1)
    send(deploy(config), 10)
    eventually(lambda: group.lag() == 0)
    assert not any(partition.problem for partition in group.status().partitions)


def _committed(file: Path, kept: Path) -> int:
    """Back up a registry, as an operator would; answers the checkpoints that the copy holds.

    A lag of 0 is told as soon as the coordinator knows of it, which may be before it is durable.
    """
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(kept)) as backup:
        source.backup(backup)
        return int(
            backup.execute("SELECT sum(checkpoint_offset) FROM pxrs_partition").fetchone()[0]
        )
