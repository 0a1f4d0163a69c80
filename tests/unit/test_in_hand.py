"""What a handler is at is written where it survives its process; the gate keeps suspects alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from pxrs_ray.actors.consumer import call_record, call_record_file
from pxrs_ray.actors.consumer.call_record import CallRecord
from pxrs_ray.actors.consumer.call_record_file import fault_path, read_record, sweep
from pxrs_ray.processing.suspects import EXITED_ITSELF, Death, Suspect
from pxrs_ray.supervision.forks import keep_children_apart

NEVER = threading.Event()


def end_in_a_call(path: Path, how: str) -> None:
    """In a process of its own: begin some calls, and end."""
    hand = CallRecord(path)
    hand.note_ends()
    done, single, batch = (hand.entry(p, 7) for p in (0, 1, 2))
    done.begin(1, 2, NEVER)
    done.end()
    single.begin(17, 18, NEVER)
    batch.begin(20, 30, NEVER)
    if how == "exit":
        os._exit(9)
    if how == "fault":
        import ctypes

        sys.stderr = None
        ctypes.string_at(0)
    if how == "clean":
        hand.end_cleanly()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("how", "cause"),
    [("exit", EXITED_ITSELF + 9), ("fault", signal.SIGSEGV), ("kill", 0), ("clean", None)],
)
def test_whoever_sees_the_process_dead_reads_what_it_was_at(
    tmp_path: Path, how: str, cause: int | None
) -> None:
    path = tmp_path / "folder" / "record"
    child = multiprocessing.get_context("spawn").Process(target=end_in_a_call, args=(path, how))
    child.start()
    child.join(30)
    assert not child.is_alive()
    death = read_record(path)
    assert not path.exists() and not fault_path(path).exists()
    if cause is None:
        assert death == Death()
        return
    assert death.cause == cause
    assert [(c.partition, c.epoch, c.first, c.end) for c in death.calls] == [
        (1, 7, 17, 18),
        (2, 7, 20, 30),
    ]
    assert read_record(path) == Death(), "it is read once"


def test_a_record_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    for data in (b"", b"x" * 63, b"x" * 4_096, bytes(64)):
        (tmp_path / "record").write_bytes(data)
        assert read_record(tmp_path / "record") == Death()


def test_records_that_nobody_comes_for_are_swept_and_those_of_the_living_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = CallRecord(tmp_path / "node" / "mine")
    dead = CallRecord(tmp_path / "node" / "dead")
    dead.words[call_record_file.PID] = 2**22 + 7
    sweep(tmp_path)
    assert (tmp_path / "node" / "dead").exists(), "its coordinator may yet come"
    monkeypatch.setattr(call_record_file, "SWEPT_AFTER_MS", -1)
    sweep(tmp_path)
    assert [path.name for path in (tmp_path / "node").iterdir()] == ["mine"]
    mine.end_cleanly()


def suspect(trouble: int, age_ms: int = 0) -> Suspect:
    return Suspect(0, 1, trouble, 0, age_ms)


def test_a_suspect_waits_for_the_others_and_the_others_for_it() -> None:
    hand = CallRecord()
    plain, alone, other = (hand.entry(p, 1) for p in (0, 1, 2))
    assert plain.begin(5, 6, NEVER)
    order: list[str] = []

    def go_alone() -> None:
        assert alone.begin(7, 8, NEVER, suspect(5))
        order.append("alone")

    def go_beside() -> None:
        while not hand.closed:
            time.sleep(0.001)
        assert other.begin(9, 10, NEVER)
        order.append("beside")

    threads = [threading.Thread(target=go) for go in (go_alone, go_beside)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    assert order == [], "one is at work yet"
    plain.end()
    time.sleep(0.1)
    assert order == ["alone"] and [c.offset for c in hand.look()] == [7]
    alone.end()
    for thread in threads:
        thread.join(10)
    assert order == ["alone", "beside"] and not hand.closed


def test_a_suspect_that_takes_long_does_not_hold_up_the_others_for_ever() -> None:
    hand = CallRecord()
    slow, other = hand.entry(0, 1), hand.entry(1, 1)
    assert slow.begin(5, 6, NEVER, suspect(2))
    began_s = time.monotonic()
    assert other.begin(7, 8, NEVER)
    assert 0.1 < time.monotonic() - began_s < 10
    assert [c.offset for c in hand.look()] == [5, 7] or len(hand.look()) == 2


def test_who_is_told_to_stop_does_not_wait_at_the_gate() -> None:
    hand = CallRecord()
    first, second, third = (hand.entry(p, 1) for p in range(3))
    assert first.begin(1, 2, NEVER, suspect(9))
    stopping = threading.Event()
    stopping.set()
    assert not second.begin(3, 4, stopping, suspect(9))
    assert not third.begin(5, 6, stopping)
    assert [c.offset for c in hand.look()] == [1]
    first.end()
    assert second.begin(3, 4, NEVER, suspect(2)), "the line is as if it had never stood there"


def test_of_several_suspects_the_one_that_had_just_begun_goes_first() -> None:
    hand = CallRecord()
    gate, old, young = (hand.entry(p, 1) for p in range(3))
    assert gate.begin(0, 1, NEVER, suspect(9))
    order: list[str] = []

    def go(name: str, entry: object, age_ms: int) -> None:
        assert entry.begin(1, 2, NEVER, suspect(9, age_ms))  # type: ignore[attr-defined]
        order.append(name)
        entry.end()  # type: ignore[attr-defined]

    threads = [
        threading.Thread(target=go, args=("old", old, 5_000)),
        threading.Thread(target=go, args=("young", young, 10)),
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    gate.end()
    for thread in threads:
        thread.join(10)
    assert order == ["young", "old"]


def test_what_a_handler_forks_writes_nothing(tmp_path: Path) -> None:
    keep_children_apart()
    hand = CallRecord(tmp_path / "record")
    hand.note_ends()
    entry = hand.entry(3, 7)
    assert entry.begin(17, 18, NEVER)
    child = os.fork()
    if child == 0:
        entry.end()
        os._exit(5)
    os.waitpid(child, 0)
    assert [c.offset for c in hand.look()] == [17] and hand.words[call_record_file.EXIT] == 0
    hand.end_cleanly()


def test_slots_are_used_again_and_one_too_many_is_only_not_counted() -> None:
    hand = CallRecord()
    entries = [hand.entry(0, 1) for _ in range(call_record_file.ENTRIES_MAX + 2)]
    assert entries[-1].begin(1, 2, NEVER) and hand.look() == []
    hand.give_back(entries[0])
    assert hand.entry(4, 1).index == 0


def test_a_record_that_cannot_be_made_is_a_problem_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(call_record, "record_path", lambda *_: tmp_path / "file" / "node" / "actor")
    made = call_record.open_record("node", "actor")
    assert "not counted" in made.problem
    assert made.entry(0, 1).begin(5, 6, NEVER)
    assert [call.offset for call in made.look()] == [5]
    assert call_record.open_record("", "actor").problem == ""
