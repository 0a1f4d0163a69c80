"""On a real Ray: handlers that call `sys.exit()`, and that make and end processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.actors.conftest import Stage
from tests.actors.recording import eventually

pytestmark = [pytest.mark.ray, pytest.mark.lent]

WAIT_S = 60.0


def handler_that_ends(folder: Path) -> Any:
    def handle(message: Any) -> None:
        import multiprocessing
        import os
        import subprocess
        import sys
        import time
        from pathlib import Path

        if message.payload == b"3":
            sys.exit(5)
        if message.payload in (b"5", b"6"):
            # As DataLoader's workers, and pools, are made and ended.
            method = "fork" if message.payload == b"5" else "spawn"
            process = multiprocessing.get_context(method).Process(target=time.sleep, args=(60,))
            process.start()
            time.sleep(0.5)
            process.terminate()
            process.join(10)
            assert process.exitcode == -15, process.exitcode
        if message.payload == b"7":
            child = os.fork()
            if child == 0:
                sys.exit(6)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
        if message.payload == b"8":
            helper = subprocess.Popen(["sleep", "60"])
            helper.terminate()
            assert helper.wait(10) == -15
        with Path(folder, "done").open("ab") as file:
            file.write(b"%s %d\n" % (message.payload, os.getpid()))

    return handle


def test_a_handler_may_exit_and_fork_and_its_consumer_stays(stage: Stage) -> None:
    topology = stage.deploy(partitions=1)
    with topology.producer("q") as producer:
        for number in range(10):
            producer.send(b"k", b"%d" % number)
    group = topology.group("g", queue="q", attempts_max=2, failure_policy="skip", backoff_ms=5)
    group.start(handler_that_ends(stage.folder), consumers=1)
    eventually(lambda: group.status().partitions[0].checkpoint == 10, timeout_s=WAIT_S)
    lines = (stage.folder / "done").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "4", "5", "6", "7", "8", "9"]
    assert len({line.split()[1] for line in lines}) == 1
    [consumer] = group.status().consumers
    assert (consumer.incarnation, consumer.state) == (1, "running")
