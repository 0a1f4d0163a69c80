"""Loads what the programs of Ray load, and forks for each of them that begins.

Rules of this file. A server of workers is of one job on one node: what it has loaded of PXRS is as
old as the oldest of them. A fork gets the words, the variables, the folder, the files, the group
and the blocked signals of the process that asked, draws random numbers of its own, and ends with
that process. The server itself ends when for some time nobody has asked and no fork is left.
"""

from __future__ import annotations

import fcntl
import gc
import marshal
import os
import random
import runpy
import select
import signal
import socket
import sys
from array import array
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

from warm_start import FILES_MAX, MESSAGE_BYTES_MAX, WORKER

IDLE_MS = 30_000
# What is loaded in the workers that are coordinators, buffers or consumers.
OF_WORKERS = (
    "ray._private.worker",
    "pxrs_ray.actors.buffer.buffer_actor",
    "pxrs_ray.actors.consumer.consumer_actor",
    "pxrs_ray.actors.coordinator.bootstrap",
    "pxrs_ray.actors.coordinator.coordinator",
    "pxrs_ray.store.sql.sqlite",
)
# Ray sets it for its agents, who read it when they load this; others that do not read it at all.
OF_AGENTS = "RAY_enable_pipe_based_agent_to_parent_health_check"
# And in what Ray starts beside its own servers and the workers.
OF_OTHERS = (
    "ray.dashboard.agent",
    "ray._private.log_monitor",
    "ray.autoscaler._private.monitor",
    "ray.dashboard.dashboard",
)


@dataclass(frozen=True)
class Fork:
    """One that runs: its id, what tells its end, and who asked for it."""

    pid: int
    ending: int
    asker: socket.socket


def serve(server: socket.socket, program: str) -> tuple[dict[str, Any], list[int]]:
    """Fork for each that asks; returns, in the fork, what was asked, and the files that came."""
    _load(program)
    server.listen(64)
    looked = select.poll()
    looked.register(server, select.POLLIN)
    forks: dict[int, Fork] = {}
    while True:
        ready = looked.poll(IDLE_MS)
        if not ready and not forks:
            os._exit(0)
        for number, _ in ready:
            if number == server.fileno():
                asker, _ = server.accept()
                if (began := _begun(asker)) is None:
                    continue
                if isinstance(began, tuple):
                    return began
                forks[began.ending] = forks[asker.fileno()] = began
                looked.register(began.ending, select.POLLIN)
                looked.register(asker, select.POLLIN)
            elif (fork := forks.get(number)) is None:
                continue
            elif number == fork.ending:
                _, status = os.waitpid(fork.pid, 0)
                with suppress(OSError):
                    fork.asker.send(str(status).encode())
                for each in (fork.ending, fork.asker.fileno()):
                    with suppress(KeyError):
                        looked.unregister(each)
                    del forks[each]
                os.close(fork.ending)
                fork.asker.close()
            else:  # who asked is gone
                os.kill(fork.pid, signal.SIGKILL)
                looked.unregister(number)


def _load(program: str) -> None:
    # Ray ends the group of a worker with it, and the first one's is not the server's.
    try:
        os.setpgid(0, os.getsid(0))
    except OSError:
        os.setpgid(0, 0)
    for number in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    sys.path.remove(str(Path(__file__).parent))
    path = list(sys.path)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has none of the threads that loading began
    loaded = OF_WORKERS
    if not program.endswith(WORKER):
        loaded, os.environ[OF_AGENTS] = OF_OTHERS, "1"
    for name in loaded:
        with suppress(Exception):
            import_module(name)
    sys.path[:] = path
    # A fork would copy all of what its collector looks through.
    gc.collect()
    gc.freeze()


def _begun(asker: socket.socket) -> Fork | tuple[dict[str, Any], list[int]] | None:
    """In the server the new fork; in the fork what it is to be; None where nothing was asked."""
    said, more, _, _ = asker.recvmsg(MESSAGE_BYTES_MAX, socket.CMSG_SPACE(4 * FILES_MAX))
    files = array("i")
    for _, _, numbers in more:
        files.frombytes(numbers)
    if not said:
        asker.close()
        return None
    if (pid := os.fork()) == 0:
        return marshal.loads(said), files.tolist()
    for number in files:
        os.close(number)
    fork = Fork(pid, os.pidfd_open(pid), asker)
    with suppress(OSError):
        asker.send(str(pid).encode())
    return fork


def become(asked: dict[str, Any], files: list[int]) -> None:
    """Have what the process had that asked, and nothing of the server."""
    wanted: list[int] = asked["files"]
    above = max((*wanted, *files, 2)) + 1
    held = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above) for number in files]
    os.closerange(0, above)
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if number not in held:
            with suppress(OSError):
                os.close(number)
    for number, into in zip(held, wanted, strict=True):
        os.dup2(number, into)
        os.close(number)
    os.environ.clear()
    os.environb.update(asked["environment"])
    os.chdir(asked["folder"])
    with suppress(OSError):
        os.setpgid(0, asked["group"])
    signal.pthread_sigmask(signal.SIG_SETMASK, asked["blocked"])
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if asked["unbuffered"]:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    invalidate_caches()
    sys.argv[:] = sys.orig_argv[1:] = asked["words"]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    sys.modules["ray._raylet"].setproctitle(" ".join(sys.orig_argv))


if __name__ == "__main__":
    become(*serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]))
    runpy.run_path(sys.argv[0], run_name="__main__")
