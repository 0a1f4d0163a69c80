"""`WarmPython`: runs one Python program after the other, each in a fork of a process that has
loaded what all of them need of others: half of what most of them take is loading that.

Rules of this file. The process that forks loads nothing of this repository, so each program finds
the sources as they are when it begins. It knows no program's end but by waiting for it; it ends
with whoever started it, and so does the program that it runs.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import IO, NoReturn

# What programs load of others, where it is installed. Plugins of pytest load themselves.
LOADED = (
    "asyncio",
    "hypothesis.stateful",
    "numpy",
    "pandas",  # by Arrow, for the first array that is made of a list
    "pyarrow",
    "pyarrow.compute",
    "pydantic",
    "pydantic.dataclasses",
    "pydantic.type_adapter",
    "pytest",
    "ray",
    "sqlite3",
    "xxhash",
)
END_S = 10.0
OUTPUT, ERRORS, TOLD = "warm.out", "warm.err", "warm.in"


class WarmPython:
    """Runs programs in `folder` with `environment`, one at a time."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            # By its path: the folder must not be where Python looks for modules of others.
            [sys.executable, "-c", Path(__file__).read_text(), str(folder)],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, told: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """What a program says: `-c` and its text, or `-m` and a module; then its arguments.

        Raises TimeoutExpired, and has ended the program; RuntimeError when it cannot be run.
        """
        (self._folder / TOLD).write_text(told)
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        try:
            asked.write(json.dumps([timeout_s, *command]) + "\n")
            asked.flush()
            ended = answers.readline()
        except BrokenPipeError:
            ended = ""
        if not ended:
            raise RuntimeError(f"nobody is left to run programs in {self._folder}")
        said = [(self._folder / name).read_text(errors="replace") for name in (OUTPUT, ERRORS)]
        status = json.loads(ended)
        if status is None:
            raise subprocess.TimeoutExpired(command, timeout_s, *said)
        return subprocess.CompletedProcess(command, status, *said)

    def close(self) -> None:
        """End the process, and the program that it runs."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        with suppress(BrokenPipeError):
            asked.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        answers.close()


def _serve(folder: Path) -> list[str]:
    """Fork for each command that comes; returns one, with its files open, in each fork."""
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)
    # A fork would copy all of what its collector looks through.
    gc.collect()
    gc.freeze()
    asked: IO[bytes] = os.fdopen(0, "rb", buffering=0, closefd=False)
    while line := asked.readline():
        timeout_s, *command = json.loads(line)
        if (pid := os.fork()) == 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            for number, name, how in (
                (0, TOLD, os.O_RDONLY),
                (1, OUTPUT, flags),
                (2, ERRORS, flags),
            ):
                opened = os.open(folder / name, how, 0o600)
                os.dup2(opened, number)
                os.close(opened)
            return [str(word) for word in command]
        status = _ended(pid, timeout_s)
        with suppress(BrokenPipeError):  # nobody waits for it any more
            print(json.dumps(status), flush=True)
    os._exit(0)


def _ended(pid: int, timeout_s: float) -> int | None:
    """How the program ended; None when its time was over, or nobody waits for it any more."""
    looked = select.poll()
    ending = os.pidfd_open(pid)
    looked.register(ending, select.POLLIN)
    looked.register(0, 0)  # tells when who asked is gone
    try:
        in_time = any(which == ending for which, _ in looked.poll(timeout_s * 1_000))
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(ending)
    return os.waitstatus_to_exitcode(status) if in_time else None


def _run(command: list[str]) -> NoReturn:
    """Be a Python that was started with this command; what was loaded before is not undone."""
    status: object = 0
    try:
        _make(command)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status or 0) if isinstance(status, int | None) else 1)


def _make(command: list[str]) -> None:
    random.seed()
    invalidate_caches()
    kind, what, *arguments = command
    sys.argv = [kind, *arguments]
    if kind == "-m":
        sys.path[0] = str(Path.cwd())
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<told>", "exec"), {"__name__": "__main__"})  # noqa: S102


if __name__ == "__main__":
    _run(_serve(Path(sys.argv[1])))
