"""A cluster of actors on one simulated machine, with the part of Ray's interface that we use.

Rules of this file. Arguments and answers are pickled. A call is sent, carried out and answered
with a little time between each; its `Plan` may lose, delay or double it, or kill at either end.
What Ray promises is kept: calls to an actor with `max_task_retries` are made again after a
restart, calls to another one fail with RayActorError when it dies.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
)

from tests.world.kernel import PROCESS, Kernel, Process, ProcessGone, SimThread, alive
from tests.world.plan import (
    HOP_S,
    LATE_S,
    NODES,
    RESTART_S,
    SPAWN_S,
    TWICE_S,
    UNAVAILABLE_S,
    Call,
    Plan,
    Reference,
    called,
    pickled,
    task_error,
)
from tests.world.sync import Future


class Handle:
    """As an ActorHandle."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def __reduce__(self) -> Any:
        return _handle_of, (self._actor.number,)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)
        return _Method(self._actor, method)


def _handle_of(number: int) -> Handle:
    return Handle(Cluster.current().actors[number])


@dataclass
class _Method:
    actor: Actor
    name: str

    def remote(self, *given: Any, **named: Any) -> Reference:
        return self.actor.cluster.send(self.actor, self.name, given, named)

    def options(self, **_: Any) -> _Method:
        return self


class Actor:
    """One actor: its class, what it is made with, and the process that it has now."""

    def __init__(
        self, cluster: Cluster, made: type, given: bytes, options: Mapping[str, Any]
    ) -> None:
        self.cluster = cluster
        self.number = len(cluster.actors)
        self.made, self.given, self.options = made, given, options
        self.name = options.get("name", f"{made.__name__}-{self.number}")
        self.process: Process | None = None
        self.instance: Any = None
        self.gone: RayActorError | None = None
        self.restarts_left = options.get("max_restarts", 0)
        self.retried = options.get("max_task_retries", 0) != 0
        self.waiting: list[Call] = []
        self.running: list[Call] = []
        cluster.actors.append(self)
        cluster.kernel.later(SPAWN_S, self._spawn)

    @property
    def kind(self) -> str:
        """What it is, in one word."""
        return str((*self.name.split("/"), self.name)[2 if self.name.count("/") > 1 else -1])

    def _spawn(self) -> None:
        if self.gone is not None:
            return
        process = self.process = self.cluster.kernel.process(self.name, self.cluster.place(self))
        process.at_death.append(lambda: self._died(process))
        try:
            given, named = pickle.loads(self.given)
            self.instance = process.context.copy().run(lambda: self.made(*given, **named))
        except ProcessGone:
            return
        except Exception as error:
            cause = task_error(f"{self.made.__name__}.__init__", error)
            self.gone = ActorDiedError(cause)
            self.cluster.kernel.kill(process)
            return
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            self.carry_out(call)

    def _died(self, process: Process) -> None:
        if self.process is not process:
            return
        self.process, self.instance = None, None
        running, self.running = self.running, []
        if self.gone is None and self.restarts_left == 0:
            self.gone = ActorDiedError()
        for call in running:
            if self.gone is None and self.retried:
                self.waiting.append(call)
            else:
                self.cluster.fail(call, self.gone or ActorUnavailableError("it died", None))
        if self.gone is not None:
            waiting, self.waiting = self.waiting, []
            for call in waiting:
                self.cluster.fail(call, self.gone)
        elif process.alive is False:
            self.restarts_left -= self.restarts_left > 0
            self.cluster.kernel.later(RESTART_S, self._spawn)

    def end(self) -> None:
        """As ray.kill: for good."""
        self.gone = self.gone or ActorDiedError()
        if self.process is not None:
            self.cluster.kernel.kill(self.process)
        else:
            for call in self.waiting:
                self.cluster.fail(call, self.gone)
            self.waiting = []

    def arrive(self, call: Call) -> None:
        """A call has come as far as here."""
        if self.gone is not None:
            self.cluster.fail(call, self.gone)
        elif self.instance is not None and self.process is not None and self.process.alive:
            self.carry_out(call)
        elif self.retried or self.restarts_left == self.options.get("max_restarts", 0):
            self.waiting.append(call)
        else:
            self.cluster.fail(call, ActorUnavailableError("it restarts", None))

    def carry_out(self, call: Call) -> None:
        """Run the method in the actor's process, and answer."""
        assert self.process is not None
        if call.fault == "callee killed before":
            call.fault = ""
            self.running.append(call)
            self.cluster.kernel.kill(self.process)
            return
        process, instance = self.process, self.instance
        self.running.append(call)
        process.context.copy().run(self._begin, call, process, instance)

    def _begin(self, call: Call, process: Process, instance: Any) -> None:
        method = getattr(instance, call.method)
        given, named = pickle.loads(call.given)

        def over(answer: Any, error: BaseException | None) -> None:
            if not process.alive or call not in self.running:
                return
            if call.fault == "callee killed after":
                call.fault = ""
                self.cluster.kernel.kill(process)
                return
            self.running.remove(call)
            self.cluster.answer(call, answer, error)

        if inspect.iscoroutinefunction(method):

            async def run() -> None:
                try:
                    answer = await method(*given, **named)
                except Exception as error:
                    over(None, error)
                else:
                    over(answer, None)

            self.cluster.kernel.loop.create_task(run())
            return
        try:
            answer = method(*given, **named)
        except Exception as error:
            over(None, error)
        else:
            over(answer, None)


def _arrive(answer: Future, packed: bytes, error: BaseException | None) -> None:
    if answer.done():
        return  # nobody waits for it any more
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(pickle.loads(packed))


class Cluster:
    """All actors; the interface of the module `ray` for those who think that it is Ray."""

    _current: Cluster | None = None

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self.kernel = kernel
        self.plan = plan
        self.actors: list[Actor] = []
        self.journal: list[str] = []
        self.put_s = 0.0
        Cluster._current = self

    @classmethod
    def current(cls) -> Cluster:
        assert cls._current is not None
        return cls._current

    def place(self, actor: Actor) -> str:
        """The node of an actor: the coordinator has one of its own."""
        return NODES[0] if actor.kind == "coordinator" else NODES[1 + actor.number % 2]

    def task(
        self, function: Callable[..., Any], given: Any, named: Any, chosen: Mapping[str, Any]
    ) -> Reference:
        """Run a function in a process of its own, on the node that its strategy names."""
        where = getattr(chosen.get("scheduling_strategy"), "node_id", NODES[0])
        process, answer = self.kernel.process(function.__name__, where), Future()
        packed = pickled((given, named))

        def run() -> None:
            told, call = pickle.loads(packed)
            try:
                back, failed = pickled(function(*told, **call)), None
            except Exception as error:
                back, failed = b"", task_error(function.__name__, error).as_instanceof_cause()
            self.kernel.later(HOP_S, _arrive, answer, back, failed)
            process.alive = False

        def begin() -> None:
            SimThread(target=run, name=function.__name__).start()

        self.kernel.later(SPAWN_S, process.context.run, begin)
        return Reference(answer)

    # --- calls ------------------------------------------------------------------------------------

    def send(self, actor: Actor, method: str, given: Any, named: Any) -> Reference:
        """Make a call; its plan decides what comes of it."""
        caller = PROCESS.get()
        if not alive():
            raise ProcessGone
        kind = f"{actor.kind}.{called(method, given)}"
        watching = caller is None or caller.name == "scenario"
        number, fault = (-1, "") if watching else self.plan.of(kind)
        call = Call(kind, number, caller, actor, method, pickled((given, named)), Future(), fault)
        if fault:
            self.put_s = self.kernel.now_s
            self.journal.append(f"{self.kernel.now_s:.3f} {kind} {number}: {fault}")
        if fault == "caller killed before":
            self._kill_caller(caller)
        self._depart(call)
        if fault == "caller killed after":
            # Once it is carried out, and before its answer comes.
            self.kernel.later(HOP_S * 1.5, self._kill, caller)
        return Reference(call.answer)

    def _depart(self, call: Call) -> None:
        kernel, arrive = self.kernel, call.actor.arrive
        if call.fault == "lost" and call.actor.retried:
            kernel.later(UNAVAILABLE_S, arrive, call)
        elif call.fault == "lost":
            lost = ActorUnavailableError("the call was lost", None)
            kernel.later(UNAVAILABLE_S, self.fail, call, lost)
        elif call.fault == "delayed":
            kernel.later(LATE_S, arrive, call)
        elif call.fault == "doubled":
            kernel.later(HOP_S, arrive, call)
            kernel.later(TWICE_S, arrive, self._copy(call))
        elif call.fault == "doubled late":
            kernel.later(HOP_S, arrive, call)
            kernel.later(LATE_S, arrive, self._copy(call))
        else:
            kernel.later(HOP_S, arrive, call)

    def _copy(self, call: Call) -> Call:
        return Call(call.kind, -1, call.caller, call.actor, call.method, call.given, Future())

    def _kill(self, process: Process | None) -> None:
        if process is not None:
            self.kernel.kill(process)

    def _kill_caller(self, caller: Process | None) -> None:
        self._kill(caller)
        raise ProcessGone

    def answer(self, call: Call, answer: Any, error: BaseException | None) -> None:
        """Let an answer travel back."""
        delay_s = HOP_S
        if call.fault == "unanswered" and call.actor.retried:
            call.fault = ""
            self.kernel.later(UNAVAILABLE_S, call.actor.arrive, call)
            return
        if call.fault == "unanswered":
            lost = ActorUnavailableError("its answer was lost", None)
            self.kernel.later(UNAVAILABLE_S, self.fail, call, lost)
            return
        if call.fault == "answered late":
            delay_s = LATE_S
        if error is not None:
            told = task_error(f"{call.kind}()", error)
            self.kernel.later(delay_s, self.fail, call, told.as_instanceof_cause())
            return
        self.kernel.later(delay_s, _arrive, call.answer, pickled(answer), None)

    def fail(self, call: Call, error: BaseException) -> None:
        """Let a call end with an error."""
        _arrive(call.answer, b"", error)

    # --- the module `ray` -------------------------------------------------------------------------

    def remote(self, made: Any) -> _Maker:
        return _Maker(self, made, {})

    def get_actor(self, name: str, namespace: str | None = None) -> Handle:
        for actor in reversed(self.actors):
            if actor.name == name and actor.gone is None:
                return Handle(actor)
        raise ValueError(f"Failed to look up actor with name {name!r}")

    def kill(self, handle: Handle, *, no_restart: bool = True) -> None:
        if alive():
            handle._actor.end()

    def get(self, reference: Any, timeout: float | None = None) -> Any:
        if isinstance(reference, list):
            return [self.get(one, timeout) for one in reference]
        try:
            return reference.answer.result(timeout)
        except TimeoutError:
            if reference.answer.done():
                raise
            raise GetTimeoutError(f"no answer in {timeout} s") from None

    def wait(
        self, references: list[Reference], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Reference], list[Reference]]:
        assert num_returns == 1
        wakers: list[Callable[[], None]] = []
        for reference in references:
            reference.answer.add_done_callback(lambda _: [wake() for wake in list(wakers)])
        self.kernel.wait(lambda: any(r.answer.done() for r in references), wakers, timeout)
        ready = [r for r in references if r.answer.done()][:1]
        return ready, [r for r in references if r not in ready]

    def list_named_actors(self, all_namespaces: bool = False) -> list[dict[str, str]]:
        return [{"name": a.name, "namespace": "pxrs"} for a in self.actors if a.gone is None]


@dataclass
class _Maker:
    cluster: Cluster
    made: Any
    chosen: dict[str, Any]

    def options(self, **chosen: Any) -> _Maker:
        return _Maker(self.cluster, self.made, {**self.chosen, **chosen})

    def remote(self, *given: Any, **named: Any) -> Any:
        if not alive():
            raise ProcessGone
        if inspect.isfunction(self.made):
            return self.cluster.task(self.made, given, named, self.chosen)
        name = self.chosen.get("name")
        if name is not None:
            try:
                found = self.cluster.get_actor(name)
            except ValueError:
                pass
            else:
                if self.chosen.get("get_if_exists"):
                    return found
                raise ValueError(f"the name {name!r} is taken")
        return Handle(Actor(self.cluster, self.made, pickled((given, named)), self.chosen))
