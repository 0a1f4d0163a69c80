"""A tenant is moved between queues while producers send and consumers work, and all goes wrong.

Rules of this file. Calls are lost, late and doubled; processes freeze and die, the router at every
step; starts take long, logs pile up. What is kept is kept by one coordinator, call after call. What
is promised is judged by what producers, consumers and operators saw.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pxrs_ray.errors import DeadlineExceeded, IllegalTransition, StoreUnavailable
from pxrs_ray.steps import Do
from pxrs_ray.tenants.profile import isolated_queue
from pxrs_ray.tenants.tenant_moves import (
    FenceProducer,
    IsServed,
    KeepMoves,
    KeepProducers,
    MakeQueue,
    ReadProgress,
    StartConsumers,
    StopConsumers,
    TenantProgress,
)
from tests.simulation.simulator.run import quiet, uncollected
from tests.simulation.simulator.scenario import Network, Scenario
from tests.simulation.simulator.world import Process, World
from tests.simulation.tenant_processes import SHARED, TENANTS, Judged, Logs, Router, Sender

TROUBLE_MS, SETTLE_MS = 40_000, 60_000


class TenantWorld:
    """Everybody, and what befalls them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"tenants {seed}")
        dice = self.dice
        network = Network(
            lost=dice.choice((0.0, 0.05)),
            doubled=dice.choice((0.0, 0.1)),
            slow=dice.choice((0.0, 0.2)),
            slow_ms_max=dice.choice((200, 1_500)),
        )
        self.world = World(seed, Scenario(network=network))
        self.judged = Judged()
        self.documents = {"moves": "", "producers": ""}
        self.queues = {SHARED}
        self.under_way: list[Callable[[], None]] = []
        self.starting: dict[str, int] = defaultdict(int)
        self.chance_of_death = dice.choice((0.0, 0.01, 0.05))
        self.chance_of_failure = dice.choice((0.0, 0.05))
        self.chance_of_freeze = dice.choice((0.0, 0.01, 0.03))
        self.wanted: dict[str, str] = {}
        self.commands = 0
        self.newest: dict[str, int] = {}
        self.calm = False
        self.logs = Logs(self.world, self.judged)
        self.routers = [Router(self, 0)]
        self.senders = [Sender(self, number) for number in range(dice.choice((1, 2, 3)))]
        self.operator = Process(self.world, "operator")
        self.operator.every(250, self._look_after)
        self.operator.every(dice.choice((1_500, 6_000)), self._command)

    def delay_ms(self) -> int:
        """How long a call takes."""
        return 1 + int(self.dice.random() * self.dice.choice((3, 3, 60)))

    def dies(self) -> bool:
        """Whether the router dies at this step."""
        died = not self.calm and self.dice.random() < self.chance_of_death
        self.judged.deaths += died
        return died

    def fails(self) -> bool:
        """Whether this call fails."""
        return not self.calm and self.dice.random() < self.chance_of_failure

    def do_now(self, done: Callable[[], None]) -> None:
        """Do what is under way, unless that was done."""
        if done in self.under_way:
            self.under_way.remove(done)
            done()

    def do(self, what: Do[Any], text: str) -> Any:
        """What coordinator, buffers and consumers do."""
        match what:
            case KeepMoves():
                self.documents["moves"] = what.text
            case KeepProducers():
                self.documents["producers"] = text
            case FenceProducer(producer, queues):
                self.logs.fenced |= {(queue, producer) for queue in queues if queue in self.queues}
            case MakeQueue(tenant, _):
                self.queues.add(isolated_queue(SHARED, tenant))
            case ReadProgress(tenant):
                return self._progress(tenant)
            case IsServed(tenant):
                return isolated_queue(SHARED, tenant) in self.logs.read
            case StartConsumers(tenant):
                self._start(tenant)
            case StopConsumers(tenant):
                queue = isolated_queue(SHARED, tenant)
                if self.starting[tenant]:
                    return DeadlineExceeded("they are being started")
                if self.logs.unread(queue):
                    self.judged.broken.append(
                        f"{tenant} is served no more, and has unread messages"
                    )
                self.logs.read.discard(queue)
            case _:
                raise AssertionError(what)
        return None

    def _start(self, tenant: str) -> None:
        """Consumers start at once, or long after nobody waits for them any more."""

        def started() -> None:
            self.starting[tenant] -= 1
            self.logs.read.add(isolated_queue(SHARED, tenant))

        self.starting[tenant] += 1
        delay_ms = 1 if self.calm or self.dice.random() < 0.7 else self.dice.randint(500, 12_000)
        self.world.at(delay_ms, started)

    def _progress(self, tenant: str) -> TenantProgress:
        ends, passed = self.logs.ends(SHARED), self.logs.checkpoints(SHARED)
        return TenantProgress(ends, passed, self.logs.unread(isolated_queue(SHARED, tenant)))

    # --- what goes wrong --------------------------------------------------------------------------

    def _look_after(self) -> None:
        """Start a dead router again, freeze this or that, let a queue pile up."""
        if not self.routers[-1].alive:
            for done in list(self.under_way):  # its calls come before those of the next one
                self.do_now(done)
            self.routers.append(Router(self, len(self.routers)))
        if self.calm:
            return
        for process in (*self.senders, self.routers[-1], self.logs):
            if not process.frozen and self.dice.random() < self.chance_of_freeze:
                name = f"{process.role}_freeze"
                self.judged.faults[name] = self.judged.faults.get(name, 0) + 1
                process.freeze()
                self.world.at(self.dice.randint(200, 9_000), process.thaw)
        if self.dice.random() < 0.05:
            queue = self.dice.choice(sorted(self.logs.read))
            self.logs.slow.add(queue)
            self.world.at(self.dice.randint(500, 6_000), lambda: self.logs.slow.discard(queue))

    def _command(self) -> None:
        if self.calm:
            return
        what, tenant = self.dice.choice(("promote", "demote")), self.dice.choice(TENANTS)
        self.command(what, tenant)

    def command(self, what: str, tenant: str) -> None:
        """Have a tenant moved; what was acknowledged last is wanted."""
        router = self.routers[-1]
        self.commands += 1
        number = self.commands

        def answered(came: Any) -> None:
            if came is None:
                # One that came later and was not answered may be done, or not.
                if self.newest[tenant] == number:
                    self.wanted[tenant] = what
            elif not isinstance(came, IllegalTransition | StoreUnavailable | DeadlineExceeded):
                self.judged.broken.append(f"{what} of {tenant}: {came!r}")
            else:
                self.wanted.pop(tenant, None)  # it may be done, or not

        self.newest[tenant] = number
        self.wanted.pop(tenant, None)
        # One line, in order: what is done late of an earlier command would undo a later one.
        router.run(lambda: router.operate(what, tenant, answered))

    # --- one run ----------------------------------------------------------------------------------

    def play(self) -> list[str]:
        """Trouble, then healing, then rest; every promise that was broken."""
        world = self.world
        world.run_until(TROUBLE_MS)
        self.calm = True
        world.network = Network()
        self.logs.slow.clear()
        for process in (*self.senders, *self.routers, self.logs):
            process.thaw()
        world.run_until(TROUBLE_MS + SETTLE_MS // 2)
        for sender in self.senders:
            sender.sending = False
        world.run_until(TROUBLE_MS + SETTLE_MS)
        self._judge_rest()
        return self.judged.judge()

    def _judge_rest(self) -> None:
        moves, broken = self.routers[-1].moves, self.judged.broken
        assert moves is not None
        for tenant, move in moves.moves.items():
            if not move.settled:
                broken.append(f"{tenant} is {move.phase} for ever: {moves.waiting_for(tenant)}")
            elif self.wanted.get(tenant, "") not in (
                "",
                {"shared": "demote"}.get(move.phase.value, "promote"),
            ):
                broken.append(
                    f"{tenant} is {move.phase}, and {self.wanted[tenant]} was acknowledged"
                )
            read = isolated_queue(SHARED, tenant) in self.logs.read
            if move.settled and read != (move.phase.value == "isolated"):
                broken.append(f"{tenant} is {move.phase}, and its consumers run: {read}")
        broken.extend(
            f"{sender.name} has unsent messages" for sender in self.senders if not sender.idle()
        )


def run(seed: int) -> tuple[list[str], Judged]:
    """One run; every promise that was broken, and what was seen."""
    with quiet(), uncollected():
        at = TenantWorld(seed)
        return at.play(), at.judged
