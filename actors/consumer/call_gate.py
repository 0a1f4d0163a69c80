"""`CallGate`: where each call of a handler waits until its group's limits let it begin.

Rules of this file. The coordinator grants calls to all consumers of a group; this process asks for
those that wait here, and for no more: what is granted and not used is lost. Those that wait pass in
the order in which they came. While the coordinator is away nobody passes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import Any

from pxrs_ray.actors.cluster.coordinator_client import CoordinatorClient
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.member_requests import TakeCalls
from pxrs_ray.actors.consumer.specs import ConsumerSpec
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery
from pxrs_ray.consumer.handler_shape import import_handler
from pxrs_ray.errors import HandlerError, PxrsError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

ASKED_AT_ONCE = 500
AGAIN_S = 0.2
STOPPING_LOOK_S = 0.1

Cost = Callable[[Any], float]
# Takes what each call costs; answers how many may begin, and in how many milliseconds to ask again.
AskForCalls = Callable[[tuple[float, ...]], Awaitable[tuple[int, int]]]


@dataclass(eq=False, slots=True)
class _Waiting:
    cost: float
    passes: bool = False


class CallGate:
    """See the rules at the head of this file. Made on the event loop that `ask` runs on."""

    def __init__(self, cost: Cost | None) -> None:
        self._cost = cost
        self._is_open = False
        self._lock = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()

    def wait(self, argument: Delivery | DeliveredBatch, stopping: threading.Event) -> bool:
        """Return True when this call may begin; False when `stopping` is set first. For threads.

        Raises what the user's cost function raises, and HandlerError for a cost that is none.
        """
        mine = _Waiting(self._cost_of(argument))
        with self._lock:
            if self._is_open:
                return True
            self._waiting.append(mine)
            self._loop.call_soon_threadsafe(self._wanted.set)
            while not mine.passes:
                if stopping.is_set():
                    self._waiting.remove(mine)
                    return False
                self._lock.wait(STOPPING_LOOK_S)
        return True

    def _cost_of(self, argument: Delivery | DeliveredBatch) -> float:
        if self._cost is None:
            return 0.0
        messages = argument if isinstance(argument, DeliveredBatch) else (argument,)
        total = 0.0
        for message in messages:
            cost = float(self._cost(message))
            if not (math.isfinite(cost) and cost >= 0):
                raise HandlerError(f"a message costs 0 or more, not {cost!r} as `cost` says")
            total += cost
        return total

    async def let_pass(self, ask: AskForCalls) -> None:
        """Ask for those that wait, for ever."""
        while True:
            with self._lock:
                costs = tuple(one.cost for one in islice(self._waiting, ASKED_AT_ONCE))
            if not costs:
                await self._wanted.wait()
                self._wanted.clear()
                continue
            try:
                granted, wait_ms = await ask(costs)
            except PxrsError as error:
                logger.info("calls wait, their limits are not known now: %s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            self._pass(granted)
            if granted < len(costs):
                await asyncio.sleep(wait_ms / 1_000)

    def open(self) -> None:
        """Let everybody pass from now on: there are no limits any more."""
        with self._lock:
            self._is_open = True
            self._pass(len(self._waiting))

    def _pass(self, granted: int) -> None:
        with self._lock:
            for _ in range(min(granted, len(self._waiting))):
                self._waiting.popleft().passes = True
            self._lock.notify_all()


class CallLimits:
    """Has the calls of a consumer's handler wait where its group has limits."""

    def __init__(self, handler: Handler, supervisor: Supervisor) -> None:
        self._handler, self._supervisor = handler, supervisor
        self._asking: asyncio.Task[None] | None = None

    def follow(self, spec: ConsumerSpec) -> None:
        """Begin or end to wait, as the configuration says now. On the consumer's event loop.

        Raises HandlerError for a cost function that cannot be imported. Who waits when the limits
        end is let go.
        """
        config, handler = spec.group.config, self._handler
        limited = config.calls_per_minute is not None or config.cost_per_minute is not None
        if limited == (handler.gate is not None):
            return
        if not limited:
            assert handler.gate is not None
            handler.gate.open()
            handler.gate = None
            if self._asking is not None:
                self._asking.cancel()
            return
        cost = import_handler(config.cost) if config.cost is not None else None
        handler.gate = CallGate(cost)  # type: ignore[arg-type]
        client = CoordinatorClient(spec.group.topology)

        async def ask(costs: tuple[float, ...]) -> tuple[int, int]:
            return await client.call(TakeCalls(spec.group.group, spec.member, costs))

        self._asking = self._supervisor.keep("its limits", partial(handler.gate.let_pass, ask))
