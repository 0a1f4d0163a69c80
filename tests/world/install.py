"""Puts a simulated machine and cluster where the product's modules have the real ones.

Rules of this file. What a module imported is found by identity, so code that is new is covered
too. Only `pxrs_ray` is touched, and everything is put back.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import faulthandler
import importlib
import os
import pkgutil
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import ray

import pxrs_ray.actors
import pxrs_ray.log
from pxrs_ray import json_logging
from pxrs_ray.actors.buffer import local_socket, tcp_socket
from pxrs_ray.actors.cluster import gcs, node_watch, process_end, process_memory, sigterm, watchdog
from pxrs_ray.actors.consumer import call_record_file
from pxrs_ray.actors.coordinator import metrics
from pxrs_ray.topology.disk_survey import Asked, Looked, look_here
from tests.world import sync
from tests.world.cluster import Cluster
from tests.world.kernel import PROCESS, Kernel, Process, ProcessGone, SimThread, alive
from tests.world.plan import NODES


class Stand(ModuleType):
    """A module in which some names mean something else."""

    def __init__(self, real: ModuleType, **names: Any) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(names)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)


def _threading() -> Stand:
    return Stand(
        threading,
        Thread=SimThread,
        Lock=sync.Lock,
        RLock=sync.RLock,
        Condition=sync.Condition,
        Event=sync.Event,
        Semaphore=sync.Semaphore,
        BoundedSemaphore=sync.Semaphore,
    )


def _times(kernel: Kernel) -> dict[str, Callable[..., Any]]:
    return {
        "monotonic": lambda: kernel.now_s,
        "monotonic_ns": lambda: int(kernel.now_s * 1e9),
        "perf_counter": lambda: kernel.now_s,
        "perf_counter_ns": lambda: int(kernel.now_s * 1e9),
        "time": lambda: kernel.now_s + kernel.wall_s,
        "time_ns": lambda: int((kernel.now_s + kernel.wall_s) * 1e9),
        "sleep": kernel.sleep,
    }


def _os(kernel: Kernel) -> Stand:
    def own(call: Callable[..., int]) -> Callable[..., int]:
        def opened(*given: Any, **named: Any) -> int:
            _refuse_the_dead()
            descriptor = call(*given, **named)
            process = PROCESS.get()
            if process is not None:
                process.descriptors.add(descriptor)
            return descriptor

        return opened

    def close(descriptor: int) -> None:
        process = PROCESS.get()
        if process is not None:
            if descriptor not in process.descriptors:
                raise OSError(errno.EBADF, "not open in this process")
            process.descriptors.discard(descriptor)
        os.close(descriptor)

    def exit_now(status: int) -> None:
        process = PROCESS.get()
        if process is None:
            raise RuntimeError("os._exit by nobody's process")
        kernel.kill(process)
        raise ProcessGone

    def kill(pid: int, number: int) -> None:
        for process in kernel.processes:
            if process.pid == pid and process.alive:
                if number:
                    kernel.kill(process)
                return
        raise ProcessLookupError(pid)

    def no_descriptor(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, "not on this machine")

    def getpid() -> int:
        process = PROCESS.get()
        return process.pid if process is not None else os.getpid()

    changing = ("write", "pwrite", "pwritev", "fsync", "fdatasync", "ftruncate", "replace")
    return Stand(
        os,
        _exit=exit_now,
        kill=kill,
        getpid=getpid,
        pidfd_open=no_descriptor,
        open=own(os.open),
        dup=own(os.dup),
        close=close,
        **{name: _of_the_living(getattr(os, name)) for name in (*changing, "unlink", "rename")},
    )


def _of_the_living(call: Callable[..., Any]) -> Callable[..., Any]:
    def made(*given: Any, **named: Any) -> Any:
        _refuse_the_dead()
        return call(*given, **named)

    return made


def _refuse_the_dead() -> None:
    if not alive():
        raise ProcessGone


class _Context:
    """As ray.get_runtime_context()."""

    gcs_address = "world"

    def get_actor_id(self) -> None:
        """None: what is an actor here is no process, and has no priority of its own."""

    def get_node_id(self) -> str:
        process = PROCESS.get()
        return process.node if process is not None else NODES[0]


def _nodes() -> list[dict[str, Any]]:
    """As ray.nodes(): the first is the head."""
    return [
        {
            "NodeID": node,
            "Alive": True,
            "NodeManagerAddress": f"10.0.0.{number}",
            "Resources": {"CPU": 2.0, **({} if number > 1 else {node_watch.HEAD: 1.0})},
        }
        for number, node in enumerate(NODES, 1)
    ]


def _begin_probe(_: str, asked: Asked) -> concurrent.futures.Future[Looked]:
    """All nodes of this machine have one disk, as on a network: who looks sees the same."""
    answer: concurrent.futures.Future[Looked] = concurrent.futures.Future()
    answer.set_result(look_here(asked))
    return answer


def _ray(cluster: Cluster) -> Stand:
    util = Stand(ray.util, list_named_actors=cluster.list_named_actors)
    return Stand(
        ray,
        remote=cluster.remote,
        get_actor=cluster.get_actor,
        kill=cluster.kill,
        get=cluster.get,
        wait=cluster.wait,
        is_initialized=lambda: True,
        cluster_resources=lambda: {"CPU": 2.0},
        nodes=_nodes,
        get_runtime_context=_Context,
        util=util,
    )


def _run_coroutine_threadsafe(coroutine: Any, loop: Any) -> sync.Future:
    done = sync.Future()

    def begin() -> None:
        task = asyncio.ensure_future(coroutine, loop=loop)

        def tell(ended: asyncio.Task[Any]) -> None:
            if done.done():
                return
            if ended.cancelled():
                done.cancel()
            elif ended.exception() is not None:
                done.set_exception(ended.exception())
            else:
                done.set_result(ended.result())

        task.add_done_callback(tell)

    loop.call_soon_threadsafe(begin)
    return done


@asynccontextmanager
async def _process_end(pid: int) -> Any:
    """The kernel tells: at once."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    kernel = Kernel.current()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    for process in kernel.processes:
        if process.pid == pid:
            context = PROCESS.get()
            if not process.alive:
                tell()
            elif context is not None:
                process.at_death.append(tell)
    yield ended


class _Sockets(Stand):
    """The module `socket`, on a machine that has none: nobody can be called past Ray."""

    def __init__(self) -> None:
        def none(*_: Any, **__: Any) -> None:
            _refuse_the_dead()
            raise OSError(errno.EAFNOSUPPORT, "no sockets on this machine")

        super().__init__(socket, socket=none, socketpair=none, create_connection=none)


class _Unwatched:
    """As `Watched`, where nobody is ever frozen and nobody can be asked."""

    def __init__(self, *_: Any) -> None:
        self.watchdog = self

    def begin(self) -> None:
        pass

    start = close = begin

    def mute(self) -> tuple[()]:
        return ()


class _Quiet:
    """Metrics of a cluster that has nobody to tell."""

    def __init__(self, *_: Any) -> None:
        pass

    async def report_for_ever(self, *_: Any) -> None:
        await asyncio.sleep(1e9)


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _calls_of_processes() -> Callable[[], gcs.GcsCalls]:
    """Here processes share an event loop; each has its calls of the GCS to itself all the same."""
    made: dict[Process | None, gcs.GcsCalls] = {}

    def calls_here() -> gcs.GcsCalls:
        process = PROCESS.get()
        if process not in made:
            made[process] = gcs.GcsCalls()
        return made[process]

    return calls_here


def _replacements(kernel: Kernel, cluster: Cluster, folder: Path) -> dict[int, Any]:
    times = _times(kernel)

    def record_path(node: str, actor: str) -> Path:
        """Memory that outlives a process of this machine."""
        return folder / "shm" / node[-8:] / actor.replace("/", "-")

    pairs: list[tuple[Any, Any]] = [
        (threading, _threading()),
        (time, Stand(time, **times)),
        (os, _os(kernel)),
        (ray, _ray(cluster)),
        (queue, Stand(queue, SimpleQueue=sync.SimpleQueue, Queue=sync.SimpleQueue)),
        (asyncio, Stand(asyncio, run_coroutine_threadsafe=_run_coroutine_threadsafe)),
        (concurrent.futures.Future, sync.Future),
        (concurrent.futures.ThreadPoolExecutor, sync.Pool),
        (threading.Thread, SimThread),
        (process_end.process_end, _process_end),
        (call_record_file.record_path, record_path),
        (faulthandler, Stand(faulthandler, enable=_nothing, register=_nothing)),
        (sigterm.on_terminate, lambda tell: _nothing),
        # Lines are sockets: here Ray carries everything, which is as right and is seen.
        (local_socket.connect, _nothing),
        (tcp_socket.begin_to_connect, _nothing),
        (json_logging.start_journal, _nothing),
        (process_memory.settle, _nothing),
        (process_memory.keep_what_is_loaded, _nothing),
        (metrics.TopologyMetrics, _Quiet),
        (watchdog.Watched, _Unwatched),
        (watchdog.Watchdog, _Unwatched),
        (socket, _Sockets()),
        (node_watch.draining_nodes, set),
        (node_watch.begin_probe, _begin_probe),
        (gcs.calls_here, _calls_of_processes()),
    ]
    pairs += [(getattr(time, name), stand) for name, stand in times.items()]
    return {id(real): stand for real, stand in pairs}


def load_everything() -> None:
    """Import what the product would import while it runs, so that nothing is missed."""
    for package in (pxrs_ray.actors, pxrs_ray.log):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in ("appender", "ledger", "routing", "queue_ref"):
        importlib.import_module(f"pxrs_ray.spark.{name}")


@contextmanager
def installed(kernel: Kernel, cluster: Cluster, folder: Path) -> Iterator[None]:
    """The product runs on this machine and cluster meanwhile."""
    load_everything()
    stands = _replacements(kernel, cluster, folder)
    undo: list[tuple[ModuleType, str, Any]] = []
    switching = sys.getswitchinterval()
    for name, module in list(sys.modules.items()):
        if not (name.startswith("pxrs_ray.") and isinstance(module, ModuleType)):
            continue
        for key, value in list(vars(module).items()):
            if id(value) in stands and not key.startswith("__"):
                undo.append((module, key, value))
                setattr(module, key, stands[id(value)])
    try:
        yield
    finally:
        sys.setswitchinterval(switching)
        for module, key, value in undo:
            setattr(module, key, value)
