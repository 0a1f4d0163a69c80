"""The watchdog and real processes, without Ray: who is ended, and who never is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pxrs_ray.actors.cluster.process_file import (
    FOLDER,
    ProcessFile,
    end_process,
    is_stopped,
    processes_of,
    write_process_file,
)
from pxrs_ray.actors.cluster.watchdog import PulseLine, Watchdog, look_at

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are known on Linux only")

LEASE_S = 1.0
PROGRAM = """
import sys, time
from pathlib import Path
from pxrs_ray.actors.cluster.watchdog import PulseLine
from pxrs_ray.actors.cluster.process_file import write_process_file
pulse = PulseLine()
write_process_file(Path(sys.argv[1]), "coordinator", pulse.name, float(sys.argv[2]))
print("up", flush=True)
while True:
    if sys.argv[3] == "busy":
        sum(range(10_000_000))  # a big state is loaded: no event loop runs
    else:
        time.sleep(0.1)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def run(folder: Path, started: list[subprocess.Popen[str]], how: str = "idle") -> ProcessFile:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(LEASE_S), how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    started.append(process)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    (found,) = processes_of(folder)
    return found


def watch(folder: Path, seconds: float) -> Watchdog:
    watchdog = Watchdog(folder, every_s=0.1)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        watchdog.look_round()
        time.sleep(0.1)
    return watchdog


def test_a_stopped_process_is_named_and_ended_within_its_lease(
    tmp_path: Path, start: list[subprocess.Popen[str]]
) -> None:
    found = run(tmp_path, start)
    watch(tmp_path, 0.5)
    assert start[0].poll() is None and look_at(found).answered
    start[0].send_signal(signal.SIGSTOP)
    while not is_stopped(start[0].pid):
        time.sleep(0.001)
    began_s = time.monotonic()
    watchdog = Watchdog(tmp_path, every_s=0.05)
    watchdog.look_round()
    (mute,) = watchdog.mute()
    assert (mute.role, mute.pid, mute.stopped) == ("coordinator", start[0].pid, True)
    while start[0].poll() is None and time.monotonic() - began_s < 10:
        watchdog.look_round()
        time.sleep(0.05)
    assert start[0].poll() == -signal.SIGKILL
    assert time.monotonic() - began_s < LEASE_S * 3
    watchdog.look_round()
    assert watchdog.mute() == ()


def test_a_process_that_only_works_hard_is_left_alone(
    tmp_path: Path, start: list[subprocess.Popen[str]]
) -> None:
    run(tmp_path, start, "busy")
    watch(tmp_path, LEASE_S * 4)
    assert start[0].poll() is None


def test_a_number_that_is_another_process_by_now_is_never_ended(
    tmp_path: Path, start: list[subprocess.Popen[str]]
) -> None:
    found = run(tmp_path, start)
    for other in (
        replace(found, started_ticks=found.started_ticks + 1),
        replace(found, boot="another boot"),
        replace(found, pid=2**22 - 1),
    ):
        assert not end_process(other)
    assert start[0].poll() is None
    assert end_process(found)
    assert start[0].wait(5) == -signal.SIGKILL


def test_the_files_of_those_that_are_gone_name_nobody(
    tmp_path: Path, start: list[subprocess.Popen[str]]
) -> None:
    run(tmp_path, start)
    start[0].kill()
    start[0].wait()
    assert list(processes_of(tmp_path)) == []
    place = tmp_path / FOLDER
    (place / "buffer-1.process").write_text("{")
    assert list(processes_of(tmp_path)) == []
    # A file of the same part replaces the one before.
    write_process_file(tmp_path, "coordinator", "x", LEASE_S)
    assert [path.name for path in sorted(place.glob("*.process"))] == [
        "buffer-1.process",
        "coordinator.process",
    ]
    assert (place / "coordinator.process").stat().st_mode & 0o777 == 0o600


def test_a_pulse_tells_for_how_long_the_loop_has_not_run(
    tmp_path: Path, start: list[subprocess.Popen[str]]
) -> None:
    pulse = PulseLine()
    mine = replace(run(tmp_path, start), pid=os.getpid(), pulse=pulse.name)
    assert look_at(mine).loop_silent_s is None
    pulse.beat()
    time.sleep(0.2)
    silent_s = look_at(mine).loop_silent_s
    assert silent_s is not None and 0.2 <= silent_s < 2
    # Somebody else answers under that name: that is no pulse of this process.
    assert not look_at(replace(mine, pid=start[0].pid)).answered
    pulse.close()
    assert not look_at(mine).answered and not is_stopped(os.getpid())
