"""`pxrs group delete`, `pxrs queue delete` and `pxrs down --delete` on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cluster

pytestmark = pytest.mark.ray

FILE = """
name = "ends"
buffers = 1
data_dir = "{folder}"
[queues.a]
partitions = 2
{more}
"""


def test_a_group_a_queue_and_a_topology_end(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "ends.toml"
    more = '[queues.b]\npartitions = 2\n[groups.g]\nqueue = "a"\n'
    file.write_text(FILE.format(folder=tmp_path, more=more))
    cluster.pxrs("up", "ends.toml", cwd=tmp_path)
    console = cluster.open_console(tmp_path)
    try:
        assert console.run("produce", "a", "x", "-t", "ends")[0] == 0
        status, _, told = console.run("group", "delete", "g", "--yes", "-t", "ends")
        assert status == 1 and "ends.toml names it" in told
        file.write_text(FILE.format(folder=tmp_path, more=""))
        status, told, _ = console.run("up", "ends.toml")
        assert status == 0 and "`pxrs group delete g` removes it" in told
        assert "`pxrs queue delete b` removes it" in told
        status, _, told = console.run("group", "delete", "g", "-t", "ends")
        assert status == 1 and "say --yes" in told
        status, told, _ = console.run("group", "delete", "g", "--yes", "-t", "ends")
        assert status == 0 and "1 messages of queue a" in told and "group g is removed" in told
        assert console.run("queue", "delete", "b", "--yes", "-t", "ends")[0] == 0
        status, told, _ = console.run("status", "-t", "ends", "--json")
        assert status == 0 and '"queue": "a"' in told and '"queue": "b"' not in told
        status, told, _ = console.run("down", "ends", "--delete", "--yes")
        assert status == 0 and "topology ends is removed" in told
        assert not (tmp_path / "ends").exists()
        assert console.run("status", "-t", "ends")[0] == 1
    finally:
        console.close()
