"""Where the threads of a consumer are: what `pxrs stack` and the page show of a handler that hangs.

Rules of this file. It reads frames that others collect, and keeps none: a frame that is kept keeps
alive what it works on.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import MemberId
from pxrs_ray.status.answers import CallUnderWay, Shown

if TYPE_CHECKING:
    from pxrs_ray.status.rendering import View

FRAMES_MAX = 60
SOURCE_CHARS = 100
# Where a node keeps the files of a job.
_SHIPPED = re.compile(r"^.*/working_dir_files/_ray_pkg_[0-9a-f]+/")
_FAULT_LINE = re.compile(r'^ +File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
COROUTINES_MAX = 50
# Whose code is not the user's: Python's own, Ray's, and ours, wherever they are installed.
_PYTHON = tuple({sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib")})
_PACKAGES = ("/site-packages/", "/dist-packages/")
_RAY = tuple(f"{packages}ray/" for packages in _PACKAGES)
_OURS = str(Path(__file__).parent.parent)


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread, or one coroutine that waits: its frames, the innermost last. `working` says that
    code of the user's is among them."""

    name: str
    working: bool
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class ConsumerStacks(Shown):
    """A consumer's process: the calls that are under way, and where its threads are.

    `note` says what is known besides, as when the process could not tell it by itself.
    """

    topology: str
    group: str
    member: MemberId
    pid: int
    node: str
    calls: tuple[CallUnderWay, ...]
    threads: tuple[ThreadStack, ...]
    note: str = ""

    def view(self) -> View:
        """Everything, the threads that work first."""
        return self.view_of(self.threads)

    def at_work(self) -> View:
        """Only the threads that work; all where none does."""
        return self.view_of(tuple(t for t in self.threads if t.working) or self.threads)

    def view_of(self, threads: Iterable[ThreadStack]) -> View:
        """These threads, and what is known of the process."""
        from pxrs_ray.status.rendering import Line, Tone, View

        lines = [Line(f"{self.group}/{self.member}: pid {self.pid} on node {self.node[:8]}")]
        if self.note:
            lines.append(Line(self.note, Tone.BAD))
        lines += [Line(f"in a call: {call}", Tone.WARN) for call in self.calls]
        if not self.calls and not self.note:
            lines.append(Line("no call of its handler is under way"))
        for thread in sorted(threads, key=lambda thread: not thread.working):
            lines.append(Line(""))
            lines.append(Line(thread.name, Tone.BOLD if thread.working else Tone.DIM))
            lines += [Line(f"  {frame}") for frame in thread.frames]
        return View(lines)


def stack_of(name: str, innermost: FrameType | None) -> ThreadStack:
    """The frames of a thread, from the one that it is in now outwards."""
    places: list[tuple[str, int, str]] = []
    while innermost is not None and len(places) < FRAMES_MAX:
        code = innermost.f_code
        places.append((code.co_filename, innermost.f_lineno, code.co_name))
        innermost = innermost.f_back
    return _stack(name, places)


def stack_of_coroutine(name: str, coroutine: Any) -> ThreadStack:
    """The frames of a coroutine that waits, through all that it awaits."""
    places: list[tuple[str, int, str]] = []
    while coroutine is not None and len(places) < FRAMES_MAX:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return _stack(name, list(reversed(places)))


def stacks_of(frames: Mapping[int, FrameType], names: Mapping[int, str]) -> list[ThreadStack]:
    """Every thread; `frames` are as `sys._current_frames` answers them."""
    return [stack_of(names.get(ident, f"thread {ident}"), frame) for ident, frame in frames.items()]


def stacks_of_text(text: str) -> list[ThreadStack]:
    """Every thread with frames, as Python's fault handler writes them, the innermost first."""
    found = []
    for part in text.split("\n\n"):
        places = [(file, int(line), what) for file, line, what in _FAULT_LINE.findall(part)]
        if places:
            found.append(_stack(part.strip().partition(" (")[0], places))
    return found


def _stack(name: str, innermost_first: list[tuple[str, int, str]]) -> ThreadStack:
    told = tuple(_told(*place) for place in innermost_first)
    working = any(_of_the_user(file) for file, _, _ in innermost_first)
    return ThreadStack(name, working, told[::-1])


def _told(file: str, line: int, function: str) -> str:
    source = linecache.getline(file, line).strip()[:SOURCE_CHARS] if _of_the_user(file) else ""
    return f"{_SHIPPED.sub('', file)}:{line} in {function}" + (f": {source}" if source else "")


def _of_the_user(file: str) -> bool:
    if file.startswith(("<frozen", *_PYTHON)) and not any(part in file for part in _PACKAGES):
        return False
    return not file.startswith(_OURS) and not any(part in file for part in _RAY)
