"""Where the threads of a process are: told by itself, and from outside where it cannot."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pxrs_ray.actors.consumer.call_record import CallRecord
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.stack_teller import StackTeller, stacks_from_outside
from pxrs_ray.status.answers import CallUnderWay
from pxrs_ray.status.stacks import ConsumerStacks, ThreadStack, stacks_of_text
from pxrs_ray.supervision.supervisor import LoopThread


class Teller(StackTeller):
    """As a consumer: without a call on record, and with a handler's event loop, or none."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._handler = cast("Handler", SimpleNamespace(loop=loop))
        self.in_hand = CallRecord()


def named(found: tuple[ThreadStack, ...], name: str) -> ThreadStack:
    [stack] = [each for each in found if each.name == name]
    return stack


def test_a_thread_that_hangs_is_told_by_the_line_that_it_is_at() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hangs_in_here() -> None:
        begun.set()
        go_on.wait(60)  # the line that is told

    thread = threading.Thread(target=hangs_in_here, name="the worker", daemon=True)
    thread.start()
    assert begun.wait(10)
    calls, threads = asyncio.run(Teller().stacks())
    go_on.set()
    thread.join(10)
    stack = named(threads, "the worker")
    line = next(frame for frame in stack.frames if "hangs_in_here" in frame)
    assert calls == () and stack.working
    assert line.startswith(__file__) and line.endswith("go_on.wait(60)  # the line that is told")
    assert "in wait" in stack.frames[-1], "the innermost comes last"


def test_a_coroutine_that_waits_is_told_through_all_that_it_awaits() -> None:
    loop = LoopThread("a handler's")

    async def inner() -> None:
        begun.set()
        await asyncio.sleep(60)

    async def handle() -> None:
        await inner()

    begun = threading.Event()
    waiting = loop.begin(handle())
    try:
        assert begun.wait(10)
        _, threads = asyncio.run(Teller(loop.loop).stacks())
        [stack] = [each for each in threads if each.name.startswith("coroutine")]
        told = "\n".join(stack.frames)
        assert stack.working and told.index("in handle") < told.index("in inner")
        assert "in sleep" in stack.frames[-1]
        assert not named(threads, "a handler's").working
    finally:
        waiting.cancel()
        loop.close()


def stacks(*threads: ThreadStack, calls: tuple[CallUnderWay, ...] = ()) -> ConsumerStacks:
    return ConsumerStacks("shop", "billing", "billing-0", 17, "ab" * 14, calls, threads)


def test_people_see_the_threads_that_work_and_all_where_none_does() -> None:
    busy = ThreadStack("pxrs-partition-3", True, ("handlers.py:7 in charge",))
    idle = ThreadStack("pxrs-gcs-1", False, ("queue.py:1 in get",))
    found = stacks(idle, busy, calls=(CallUnderWay(3, 17, 41.2),))
    told = found.at_work().text()
    assert "billing/billing-0: pid 17 on node abababab" in told and "P3 offset 17 for 41 s" in told
    assert "charge" in told and "pxrs-gcs-1" not in told
    assert found.view().text().index("charge") < found.view().text().index("pxrs-gcs-1")
    assert "no call of its handler is under way" in stacks(idle).at_work().text()
    assert "pxrs-gcs-1" in stacks(idle).at_work().text()


@pytest.mark.parametrize(
    ("file", "working"),
    [
        ("/tmp/ray/session_1/runtime_resources/working_dir_files/_ray_pkg_1/handlers.py", True),
        ("/venv/lib/python3.11/site-packages/requests/sessions.py", True),
        ("/venv/lib/python3.11/site-packages/ray/_private/worker.py", False),
        (threading.__file__, False),
        (str(CallRecord.__init__.__code__.co_filename), False),
    ],
)
def test_whose_code_a_thread_is_in(file: str, working: bool) -> None:
    [found] = stacks_of_text(f'Thread 1 (most recent call first):\n  File "{file}", line 1 in f\n')
    assert found.working is working
    assert found.frames[0].startswith(f"{file}:1 in f" if "_ray_pkg" not in file else "handlers.py")


# --- from outside ---------------------------------------------------------------------------------

HOLDS_THE_INTERPRETER = """
import ctypes, os
{listens}
def never_lets_go():
    nothing_comes, _ = os.pipe()
    print("begun", flush=True)
    ctypes.PyDLL(None).read(nothing_comes, ctypes.create_string_buffer(1), 1)
never_lets_go()
"""
LISTENS = "from pxrs_ray.actors.consumer.stack_teller import answer_signals; answer_signals()"
Begin = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts a process that looks as a consumer's does, and that holds the interpreter."""
    children: list[subprocess.Popen[str]] = []

    def start(listens: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            ["ray::Consumer", "-c", HOLDS_THE_INTERPRETER.format(listens=listens)],
            executable=sys.executable,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdout is not None and child.stdout.readline() == "begun\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.wait(10)
        cast("Any", child.stdout).close()


def test_a_call_that_holds_the_interpreter_is_seen_from_outside(begin: Begin) -> None:
    child = begin(LISTENS)
    for _ in range(2):  # and again: only what is new is told
        told, text = stacks_from_outside(child.pid, "Consumer")
        [stack] = stacks_of_text(text)
        assert "busy where Python cannot run" in told and stack.working
        assert "in never_lets_go" in stack.frames[-1]
    assert child.poll() is None


def test_a_process_that_does_not_await_the_signal_never_gets_it(begin: Begin) -> None:
    child = begin("")
    told, text = stacks_from_outside(child.pid, "Consumer")
    assert "busy" in told and text == "" and child.poll() is None


def test_frozen_and_gone_are_other_words(begin: Begin) -> None:
    child = begin(LISTENS)
    assert stacks_from_outside(child.pid, "Buffer") == ("its process is gone", "")
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    told, text = stacks_from_outside(child.pid, "Consumer")
    assert "frozen: it was stopped (SIGSTOP)" in told and f"kill -CONT {child.pid}" in told
    assert text == ""
    child.kill()
    child.wait(10)
    assert stacks_from_outside(child.pid, "Consumer") == ("its process is gone", "")
