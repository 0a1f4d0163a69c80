"""`pxrs import` and `pxrs export` against a real topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.errors import UsageError
from pxrs_ray.interop.folder_queue import FolderQueue
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]


def test_a_folder_goes_in_once_with_its_offsets_and_comes_out_again(stage: Stage) -> None:
    from pxrs_ray.actors.client.folder_transfer import export_folder, import_folder

    folder = stage.folder / "legacy"
    source = FolderQueue(folder)
    for partition in range(2):
        source.write(partition, [(o, b"p%d-%d" % (partition, o), o) for o in range(1, 2_501)])
    source.commit("writer", [(0, 2_000), (1, 0)])
    topology = stage.deploy(partitions=2)
    assert import_folder(topology, folder, "q").messages == 5_000
    source.write(1, [(2_501, b"p1-2501", 1)])
    again = import_folder(topology, folder, "q")
    assert (again.messages, again.groups) == (1, ("writer",))
    group = topology.group("writer")
    assert {row.partition: row.checkpoint for row in group.status().partitions} == {0: 2_000, 1: 0}
    group.start(Recorder(stage.notes), consumers=1)
    eventually(lambda: group.lag() == 0)
    payloads = {note.payload for note in stage.notebook.notes()}
    assert payloads == {f"p0-{o}" for o in range(2_001, 2_501)} | {
        f"p1-{o}" for o in range(1, 2_502)
    }
    import_folder(topology, folder, "q")
    assert group.lag() == 0, "a group that has gone further stays there"
    out = stage.folder / "out"
    assert export_folder(topology, "q", out).messages == 5_001
    assert _content(out) == _content(folder)
    assert FolderQueue(out).committed("writer") == {0: 2_500, 1: 2_501}
    assert export_folder(topology, "q", out).messages == 0


def _content(folder: Path) -> dict[str, bytes]:
    queue = folder / "queue"
    return {str(path.relative_to(queue)): path.read_bytes() for path in queue.rglob("*.msg")}


def test_what_cannot_keep_its_offsets_is_refused(stage: Stage) -> None:
    from pxrs_ray.actors.client.folder_transfer import import_folder

    folder = stage.folder / "legacy"
    FolderQueue(folder).write(0, [(1, b"x", 1)])
    topology = stage.deploy(partitions=2)
    with pytest.raises(UsageError, match="has 1 partitions and queue 'q' 2"):
        import_folder(topology, folder, "q")
    FolderQueue(folder).write(1, [(5, b"x", 1)])
    with pytest.raises(UsageError, match="begins at 5"):
        import_folder(topology, folder, "q")
    send(topology, 1)
