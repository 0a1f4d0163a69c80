"""One call between processes, what a plan does to it, and how its answer is awaited."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray import cloudpickle
from ray.exceptions import RayTaskError

from tests.world.kernel import Process
from tests.world.sync import Future

if TYPE_CHECKING:
    from tests.world.cluster import Actor

HOP_S = 0.000_2
SPAWN_S = 0.05
RESTART_S = 0.3
UNAVAILABLE_S = 1.0
LATE_S = 70.0
TWICE_S = 0.4
LATE_FAULTS = ("answered late", "delayed", "doubled late")
# As Ray names nodes; the coordinator and the drivers are on the first.
NODES = tuple(f"{number + 1:056x}" for number in range(3))
# A call that only carries another one, and where: what it carries is what counts.
CARRIERS = {"call": 0}


@dataclass
class Call:
    """One call under way. `kind` names it for people and plans: 'coordinator.ScaleGroup'."""

    kind: str
    number: int
    caller: Process | None
    actor: Actor
    method: str
    given: bytes
    answer: Future
    fault: str = ""


@dataclass
class Plan:
    """Which call gets which fault; `put` says whether it came to that."""

    kind: str = ""
    number: int = 0
    fault: str = ""
    put: bool = False
    armed: bool = False
    seen: Counter[str] = field(default_factory=Counter)

    def of(self, kind: str) -> tuple[int, str]:
        """The number of this call since the plan was armed, and what shall happen to it."""
        if not self.armed:
            return -1, ""
        number = self.seen[kind]
        self.seen[kind] += 1
        if (kind, number) != (self.kind, self.number) or self.put:
            return number, ""
        self.put = True
        return number, self.fault


class Reference:
    """As an ObjectRef: awaited, waited for, or asked for its future."""

    def __init__(self, answer: Future) -> None:
        self.answer = answer

    def future(self) -> Future:
        return self.answer

    def __await__(self) -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def tell(answer: Any) -> None:
            if done.done():
                return
            if answer.exception() is not None:
                done.set_exception(answer.exception())
            else:
                done.set_result(answer.result())

        self.answer.add_done_callback(tell)
        return done.__await__()


def called(method: str, given: Any) -> str:
    """What a call is called in plans: by what it carries, where it only carries something."""
    if method == "answer":
        return type(given[0]).__name__
    return f"{method}.{given[CARRIERS[method]]}" if method in CARRIERS else method


def pickled(value: Any) -> bytes:
    """As a call carries it."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        packed: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        return packed


def task_error(name: str, error: BaseException) -> RayTaskError:
    """What a caller gets of an error that a method raised."""
    told = "".join(traceback.format_exception(error))
    return RayTaskError(name, told, error, proctitle="world", pid=1, ip="n")
