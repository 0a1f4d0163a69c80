"""Tests begin a program of Ray by a fork of a process that has loaded Ray; all else is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.light_ray import python_path

PROGRAM = """
import json, os, random, signal, sys, time
told = {
    "loaded": "ray" in sys.modules,
    "pid": os.getpid(),
    "group": os.getpgrp(),
    "words": sys.argv[1:],
    "path": sys.path[0],
    "main": sys.modules["__main__"].__file__,
    "variable": os.environ.get("PXRS_TOLD"),
    "folder": os.getcwd(),
    "pipe": os.read(int(sys.argv[-1]), 9).decode(),
    "random": random.random(),
}
print(json.dumps(told), flush=True)
if "long" in sys.argv:
    time.sleep(60)
if "dies" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(7)
"""
WAIT_S = 30.0

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Begins the program under a name of Ray's."""
    program = tmp_path / "ray/_private/log_monitor.py"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM)

    def begin(*words: str, name: Path = program, **variables: str) -> subprocess.Popen[str]:
        gives, takes = os.pipe()
        os.write(takes, b"in a pipe")
        os.close(takes)
        try:
            return subprocess.Popen(
                [sys.executable, "-u", str(name), *words, str(gives)],
                stdout=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": python_path(), **variables},
                pass_fds=[gives],
                process_group=0,
            )
        finally:
            os.close(gives)

    return begin


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the program says, which goes on."""
    assert process.stdout is not None
    said: dict[str, Any] = json.loads(process.stdout.readline())
    return said


def ended(process: subprocess.Popen[str]) -> int:
    """How the program ended."""
    process.communicate(timeout=WAIT_S)
    return process.returncode


def test_it_has_all_that_its_process_was_given(begin: Begin, tmp_path: Path) -> None:
    drawn = set()
    for number in ("1", "2"):
        process = begin("word", PXRS_TOLD=number)
        said = told(process)
        assert said["loaded"] and said["pid"] != process.pid
        assert said["words"][0] == "word" and said["variable"] == number
        assert said["folder"] == str(tmp_path) and said["path"] == str(tmp_path / "ray/_private")
        assert said["main"] == str(tmp_path / "ray/_private/log_monitor.py")
        assert said["group"] == process.pid and said["pipe"] == "in a pipe"
        assert ended(process) == 7
        drawn.add(said["random"])
    assert len(drawn) == 2, "forks draw the same random numbers"


def test_its_process_ends_as_it_does_and_it_ends_with_its_process(begin: Begin) -> None:
    process = begin("dies")
    told(process)
    assert ended(process) == -signal.SIGKILL

    for number in (signal.SIGTERM, signal.SIGKILL):
        process = begin("long")
        fork = psutil.Process(told(process)["pid"])
        process.send_signal(number)
        assert ended(process) == -number
        fork_is_gone(fork)

    process = begin("long")
    os.kill(told(process)["pid"], signal.SIGKILL)
    assert ended(process) == -signal.SIGKILL


def fork_is_gone(fork: psutil.Process) -> None:
    end_s = time.monotonic() + WAIT_S
    while fork.is_running():
        assert time.monotonic() < end_s, "the fork lives on"
        time.sleep(0.01)


def test_every_other_program_begins_as_ever(begin: Begin, tmp_path: Path) -> None:
    name = tmp_path / "program.py"
    name.write_text(PROGRAM)
    process = begin(name=name)
    said = told(process)
    assert not said["loaded"] and said["pid"] == process.pid
    assert ended(process) == 7
