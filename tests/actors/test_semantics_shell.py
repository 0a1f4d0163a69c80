"""Processing semantics on a real Ray: they must hold through kills and hand-overs."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.config import ByKey, Ordered
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.errors import NotFound
from tests.actors.conftest import Stage, send
from tests.actors.recording import Failing, Note, Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]


def has(notes: Callable[[], list[Note]], count: int) -> bool:
    return len(notes()) >= count


def test_keys_run_beside_each_other_in_order_and_a_kill_repeats_only_gaps(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group("g", queue="q", processing=ByKey(parallelism=16), commit_interval_ms=20)
    group.start(Recorder(stage.notes, work_s=0.01), consumers=1)
    send(topology, 400, keys=40)
    notes = eventually(lambda: len(n := stage.notebook.notes()) >= 150 and n)
    os.kill(notes[0].pid, signal.SIGKILL)
    eventually(lambda: group.lag() == 0, 60)
    notes = stage.notebook.notes()
    assert {note.payload for note in notes} == {f"m{n}" for n in range(400)}
    # What was in hand and what 20 ms of commits had not told is repeated, and no more.
    assert len(notes) <= 400 + 150
    for key in {note.key for note in notes}:
        offsets = [
            note.offset for note in notes if note.key == key and note.epoch == notes[0].epoch
        ]
        assert offsets == sorted(offsets)


def test_attempts_count_on_through_hand_overs_until_the_dead_letter(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group(
        "g",
        queue="q",
        processing=ByKey(parallelism=4),
        attempts_max=8,
        backoff_ms=300,
        backoff_ms_max=300,
        commit_interval_ms=10,
        failure_policy="dead_letter",
    )
    send(topology, 10, keys=10)
    group.start(Failing(stage.notes, {"m3": -1}), consumers=4)
    for number in range(3):
        failures_of = partial(stage.notebook.notes, "failed")
        eventually(partial(has, failures_of, 2 * (number + 1)))
        owner = next(iter(group.status().owners))
        group.remove_consumer(owner)
    eventually(lambda: group.lag() == 0)
    attempts = [note.attempt for note in stage.notebook.notes("failed")]
    assert attempts == list(range(1, 9))
    assert len({note.member for note in stage.notebook.notes("failed")}) >= 4
    assert len(stage.notebook.notes()) == 9
    with topology.group("dead", queue="q.dead").consumer() as consumer:
        [letter] = eventually(lambda: (b := consumer.poll(1)) and list(b))
    headers = dict(letter.headers)
    assert letter.payload == b"m3" and headers["pxrs-attempts"] == b"8"
    assert b"cannot do m3" in headers["pxrs-error"]


class Poisoned(Failing):
    """Fails on its payloads until a file says that the cause is mended."""

    def handle(self, message: Delivery) -> None:
        mended = (self.notebook.folder / "mended").exists()
        Recorder.handle(self, message) if mended else super().handle(message)


def quarantined(stage: Stage, handler: Recorder, consumers: int = 1) -> tuple[Any, Any]:
    topology = stage.deploy(partitions=2)
    group = topology.group(
        "g",
        queue="q",
        processing=ByKey(parallelism=8),
        attempts_max=2,
        backoff_ms=5,
        failure_policy="quarantine",
        commit_interval_ms=20,
    )
    group.start(handler, consumers=consumers)
    return topology, group


def offsets_of(stage: Stage, key: str) -> list[int]:
    return [note.offset for note in stage.notebook.notes() if note.key == key]


def test_a_poisoned_key_is_put_aside_and_redriven_in_order(stage: Stage) -> None:
    topology, group = quarantined(stage, Poisoned(stage.notes, {"m20": -1}))
    send(topology, 100, keys=10)
    eventually(lambda: group.lag() == 0)
    # m0, m10 of its key were done before, m20 fails, m30 ... m90 wait behind it.
    [aside] = group.quarantine.list()
    assert (aside.key, aside.waiting, aside.attempts) == (b"k0", 8, 2)
    assert "cannot do m20" in aside.error
    assert len(stage.notebook.notes()) == 92
    waiting = group.quarantine.show("k0")
    assert [message.payload for _, message in waiting] == [b"m%d" % n for n in range(20, 100, 10)]
    left = group.quarantine.retry("k0")
    assert [each.attempts for each in left] == [4] and len(stage.notebook.notes()) == 92
    (stage.notes / "mended").touch()
    send(topology, 20, first=100, keys=10)
    assert group.quarantine.retry("k0") == ()
    eventually(lambda: len(stage.notebook.notes()) == 120)
    offsets = offsets_of(stage, "k0")
    assert len(offsets) == 12 and offsets == sorted(offsets)
    assert group.quarantine.list() == ()
    with pytest.raises(NotFound):
        group.quarantine.show("k0")


def test_a_quarantine_survives_its_owner_and_a_skip_lets_the_rest_flow(stage: Stage) -> None:
    topology, group = quarantined(stage, Poisoned(stage.notes, {"m20": -1}), consumers=2)
    send(topology, 100, keys=10)
    eventually(lambda: group.lag() == 0)
    [aside] = group.quarantine.list()
    owner = group.status().partitions[aside.partition].owner
    pids = {consumer.member: consumer.pid for consumer in group.status().consumers}
    os.kill(pids[owner], signal.SIGKILL)
    eventually(lambda: group.status().partitions[aside.partition].owner not in (None, owner))
    send(topology, 50, first=100, keys=10)
    eventually(lambda: group.lag() == 0)
    [aside] = group.quarantine.list()
    assert aside.waiting == 13 and len(stage.notebook.notes()) >= 92 + 45
    assert group.quarantine.skip("k0") == 1
    assert group.quarantine.retry("k0") == ()
    offsets = offsets_of(stage, "k0")
    assert len(set(offsets)) == 14 and offsets == sorted(offsets)
    send(topology, 10, first=150, keys=10)
    eventually(lambda: "m150" in stage.notebook.payloads())


class Ledger:
    """Adds each message's amount to its account, in the user's own database."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def handle(self, message: Delivery) -> None:
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            with message.transaction(connection) as cursor:
                time.sleep(0.002)
                cursor.execute(
                    "UPDATE account SET total = total + ?, messages = messages + 1 WHERE id = ?",
                    (int(message.payload[1:]), (message.key or b"").decode()),
                )
        finally:
            connection.close()


@pytest.mark.parametrize("mode", [Ordered(), ByKey(parallelism=4)], ids=["ordered", "by_key"])
def test_a_fenced_sink_counts_exactly_once_through_kills(
    stage: Stage, mode: Ordered | ByKey
) -> None:
    path = stage.folder / "user.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE account (id TEXT PRIMARY KEY, total INT, messages INT)")
        rows = [(f"k{n}",) for n in range(8)]
        connection.executemany("INSERT INTO account VALUES (?, 0, 0)", rows)

    def messages() -> int:
        [(found,)] = connection.execute("SELECT SUM(messages) FROM account").fetchall()
        return int(found)

    topology = stage.deploy(partitions=2)
    # Commits are rare, so that each kill makes many messages come again.
    group = topology.group("g", queue="q", processing=mode, commit_interval_ms=400)
    group.start(Ledger(path), consumers=2)
    send(topology, 600, keys=8)
    for wanted in (100, 250):
        eventually(partial(lambda wanted: messages() >= wanted, wanted), 60)
        os.kill(next(c.pid for c in group.status().consumers if c.partitions), signal.SIGKILL)
    eventually(lambda: group.lag() == 0, 60)
    totals = dict(connection.execute("SELECT id, total FROM account").fetchall())
    assert totals == {f"k{key}": sum(range(key, 600, 8)) for key in range(8)}
    assert messages() == 600
    connection.close()
