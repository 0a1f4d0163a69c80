"""Ten thousand gaps in one partition: it goes on, and a kill repeats only what was under way."""

from __future__ import annotations

import os
import signal
import time

import pytest

from pxrs_ray import RetryAfter
from pxrs_ray.config import ByKey
from pxrs_ray.consumer.delivery import Delivery
from tests.actors.conftest import Stage, send
from tests.actors.recording import Recorder, eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

MESSAGES, KEYS = 20_000, 2_000
COMMITS_MS = 100


class EverySecondWaits(Recorder):
    """Every second key waits until a file says that it need not."""

    def handle(self, message: Delivery) -> None:
        assert message.key is not None
        is_held = int(message.key[1:]) % 2 == 0
        if is_held and not (self.notebook.folder / "open").exists():
            raise RetryAfter(5.0)
        super().handle(message)


def test_ten_thousand_gaps_hold_nothing_up_and_a_kill_repeats_none_of_them(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    group = topology.group(
        "g",
        queue="q",
        processing=ByKey(parallelism=16, lookahead_records=2 * MESSAGES),
        commit_interval_ms=COMMITS_MS,
    )
    send(topology, MESSAGES, keys=KEYS)
    group.start(EverySecondWaits(stage.notes), consumers=1)
    eventually(lambda: len(stage.notebook.notes()) >= MESSAGES // 2, 120)
    time.sleep(20 * COMMITS_MS / 1_000)  # what is done is committed by then
    assert group.lag() == MESSAGES, "the first message is not done, so nothing is passed"
    pid = stage.notebook.notes()[0].pid
    os.kill(pid, signal.SIGKILL)
    (stage.notebook.folder / "open").touch()
    eventually(lambda: group.lag() == 0, 120)
    notes = stage.notebook.notes()
    assert {note.payload for note in notes} == {f"m{n}" for n in range(MESSAGES)}
    assert len({note.pid for note in notes}) == 2
    assert len(notes) == MESSAGES, f"{len(notes) - MESSAGES} were done twice"
