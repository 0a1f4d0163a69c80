"""Folder queues: the very layout of the documents, read and written."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.interop.folder_queue import FolderQueue, chunks


def as_documented(root: Path) -> Path:
    for partition, count in ((0, 3), (1, 2)):
        folder = root / "queue" / f"partition-{partition}"
        folder.mkdir(parents=True)
        for offset in range(1, count + 1):
            (folder / f"{offset:014}.msg").write_bytes(b"p%d-%d" % (partition, offset))
        (folder / "offset.txt").write_text(f"{count + 1}\n")
    offsets = root / "consumer_offsets" / "storage-writer"
    offsets.mkdir(parents=True)
    (offsets / "partition-0.offset").write_text("2")
    (offsets / "partition-1.offset").write_text("0")
    return root


@pytest.mark.parametrize("inside", ["", "queue"])
def test_the_documented_layout_is_read(tmp_path: Path, inside: str) -> None:
    found = FolderQueue(as_documented(tmp_path) / inside)
    assert found.partitions() == [0, 1]
    assert [(m.offset, m.payload()) for m in found.messages(0)] == [
        (1, b"p0-1"),
        (2, b"p0-2"),
        (3, b"p0-3"),
    ]
    assert found.messages(0)[0].path.name == "00000000000001.msg"
    assert found.next_offset(0) == 4 and found.groups() == ["storage-writer"]
    assert found.committed("storage-writer") == {0: 2, 1: 0}


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    made = FolderQueue(tmp_path)
    assert made.write(1, [(7, b"seven", 1_000), (8, b"eight", 2_000)]) == 2
    assert made.write(1, [(8, b"other", 2_000), (9, b"nine", 3_000)]) == 1
    assert made.write(0, []) == 0
    made.commit("g", [(0, 0), (1, 8)])
    again = FolderQueue(tmp_path)
    told = [(m.offset, m.payload(), m.timestamp_ms()) for m in again.messages(1)]
    assert told == [(7, b"seven", 1_000), (8, b"eight", 2_000), (9, b"nine", 3_000)]
    assert again.next_offset(1) == 10 and again.next_offset(0) == 1
    assert again.committed("g") == {0: 0, 1: 8}
    names = {path.name for path in (tmp_path / "queue" / "partition-1").iterdir()}
    assert names == {"00000000000007.msg", "00000000000008.msg", "00000000000009.msg", "offset.txt"}


def test_a_missing_message_is_told(tmp_path: Path) -> None:
    root = as_documented(tmp_path)
    (root / "queue" / "partition-0" / "00000000000002.msg").unlink()
    with pytest.raises(UsageError, match="message 2 is missing"):
        FolderQueue(root).messages(0)


def test_what_is_no_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        FolderQueue(tmp_path / "nothing").partitions()
    (tmp_path / "queue").mkdir()
    with pytest.raises(NotFound, match="holds no folders"):
        FolderQueue(tmp_path).partitions()
    (tmp_path / "queue" / "partition-3").mkdir()
    with pytest.raises(UsageError, match="not numbered"):
        FolderQueue(tmp_path).partitions()


def test_chunks_hold_everything_once(tmp_path: Path) -> None:
    messages = FolderQueue(as_documented(tmp_path)).messages(0)
    assert [len(chunk) for chunk in chunks(messages, 2)] == [2, 1]
