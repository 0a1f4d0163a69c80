"""Who looks again at files that grow sees all that is in them, and reads only what is new."""

from __future__ import annotations

from pathlib import Path

from tests.grown_files import GrownFiles


def test_what_is_added_is_read_once_and_all_is_answered(tmp_path: Path) -> None:
    parsed: list[bytes] = []

    def parse(line: bytes) -> str:
        parsed.append(line)
        return line.decode()

    one, other = tmp_path / "one", tmp_path / "other"
    grown = GrownFiles(parse)
    one.write_bytes(b"a\nb\nhal")
    assert grown.lines_of([one]) == ["a", "b"], "half of a line is none"
    with one.open("ab") as file:
        file.write(b"f\nc\n")
    other.write_bytes(b"x\n")
    assert grown.lines_of([one, other]) == ["a", "b", "half", "c", "x"]
    assert grown.lines_of([one, other]) == ["a", "b", "half", "c", "x"]
    assert parsed == [b"a", b"b", b"half", b"c", b"x"]


def test_a_file_that_is_another_one_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    grown = GrownFiles(bytes.decode)
    path.write_bytes(b"a\nb\n")
    assert grown.lines_of([path]) == ["a", "b"]
    path.write_bytes(b"c\n")
    assert grown.lines_of([path]) == ["c"]
    another = tmp_path / "another"
    another.write_bytes(b"d\ne\nf\n")
    another.rename(path)
    assert grown.lines_of([path]) == ["d", "e", "f"]
    grown.lines_of([path]).clear()
    assert grown.lines_of([path]) == ["d", "e", "f"], "what was answered is the asker's own"
