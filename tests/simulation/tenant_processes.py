"""Who is in the world of tenants: the logs, the router's lives, and the producers.

Rules of this file. `TenantMoves` and `FollowedRoutes` are those that ship, carried as their actors
carry them, and nothing else is decided here. Logs drop what they have, and refuse who is fenced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.steps import Do
from pxrs_ray.tenants.followed_routes import FollowedRoutes
from pxrs_ray.tenants.migration import Route
from pxrs_ray.tenants.profile import TenantProfile, isolated_queue
from pxrs_ray.tenants.tenant_moves import KeepProducers, TenantMoves
from tests.simulation.simulator.world import Process, World, call
from tests.simulation.step_driver import Tell, Turns, drive

if TYPE_CHECKING:
    from tests.simulation.tenant_world import TenantWorld

SHARED, TENANTS = "orders", ("acme", "zen")
PARTITIONS = {True: 2, False: 3}  # of a tenant's own queue, of the shared one
GOLD = TenantProfile("gold", isolated=True, partitions=2, consumers=1)
LOOK_MS = 100
SYNC_MS, SYNC_WAIT_MS, APPEND_WAIT_MS = 500, 3_000, 400


@dataclass(slots=True)
class Message:
    """What a producer was given to send, and what became of it."""

    producer: str
    tenant: str
    key: int
    number: int
    state: str = "under way"

    def done(self) -> bool:
        """Whether it is acknowledged or given up."""
        return self.state != "under way"


@dataclass
class Judged:
    """What was seen from outside, in order."""

    sent: list[Message] = field(default_factory=list)
    worked: list[Message] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    deaths: int = 0
    broken: list[str] = field(default_factory=list)

    def judge(self) -> list[str]:
        """Every promise that was broken."""
        broken, seen = list(self.broken), defaultdict(list)
        for message in self.worked:
            seen[message.producer, message.tenant, message.key].append(message.number)
        for whose, numbers in seen.items():
            if len(set(numbers)) != len(numbers):
                broken.append(f"{whose}: worked twice, {numbers}")
            if numbers != sorted(numbers):
                broken.append(f"{whose}: out of order, {numbers}")
        worked = {id(message) for message in self.worked}
        lost = [m for m in self.sent if m.state == "acknowledged" and id(m) not in worked]
        broken.extend(f"lost: {message}" for message in lost[:3])
        return broken


class Logs(Process):
    """Every log of every queue, with what has worked them; reads at its own pace."""

    role = "log"

    def __init__(self, world: World, judged: Judged) -> None:
        super().__init__(world, "logs")
        self.judged = judged
        self.logs: dict[tuple[str, int], list[Message]] = defaultdict(list)
        self.passed: dict[tuple[str, int], int] = defaultdict(int)
        self.next_number: dict[tuple[str, str], int] = defaultdict(int)
        self.fenced: set[tuple[str, str]] = set()
        self.read = {SHARED}
        self.slow: set[str] = set()
        self.every(7, self._work)

    def append(self, queue: str, life: str, number: int, message: Message, tell: Tell) -> None:
        """Take one message; a repeat is answered as the first time."""
        if (queue, life) in self.fenced:
            tell("fenced")
            return
        if number > self.next_number[queue, life]:
            return  # one before it is under way yet: it is sent again
        if number == self.next_number[queue, life]:
            self.next_number[queue, life] += 1
            self.logs[queue, message.key % PARTITIONS[queue != SHARED]].append(message)
        tell("acknowledged")

    def ends(self, queue: str) -> dict[int, int]:
        """Where each log of a queue ends."""
        return {p: len(self.logs[queue, p]) for p in range(PARTITIONS[queue != SHARED])}

    def checkpoints(self, queue: str) -> dict[int, int]:
        """How far each was worked."""
        return {p: self.passed[queue, p] for p in range(PARTITIONS[queue != SHARED])}

    def unread(self, queue: str) -> int:
        """How many messages of a queue nobody has worked."""
        return sum(self.ends(queue).values()) - sum(self.checkpoints(queue).values())

    def _work(self) -> None:
        for queue in sorted(self.read):
            if queue in self.slow:
                continue
            for partition in range(PARTITIONS[queue != SHARED]):
                at, log = self.passed[queue, partition], self.logs[queue, partition]
                if at < len(log):
                    self.judged.worked.append(log[at])
                    self.passed[queue, partition] += 1


class Router(Process):
    """One life of the actor that moves tenants."""

    role = "router"

    def __init__(self, at: TenantWorld, number: int) -> None:
        super().__init__(at.world, f"router-{number}")
        self.at = at
        self.operating, self.keeping = Turns(), Turns()
        self.moves: TenantMoves | None = None
        self._reach(self._begin)

    def _reach(self, do: Callable[[], None]) -> None:
        self.after(self.at.delay_ms(), do)

    def _begin(self) -> None:
        made = TenantMoves(SHARED, 20.0, lambda: self.monotonic_ms() / 1_000)
        made.begin(self.at.documents["moves"], self.at.documents["producers"])
        self.moves = made
        self.every(LOOK_MS, made.tick)
        self._look_later()

    def _look_later(self) -> None:
        self.after(LOOK_MS, lambda: self.operating.take(self._look))

    def _look(self) -> None:
        assert self.moves is not None

        def ended(_: Any) -> None:
            self.operating.over()
            self._look_later()

        drive(self, self.moves.look(), self._make, ended)

    def sync(self, name: str, follows: dict[str, int], is_new: bool, tell: Tell) -> None:
        """A producer asks."""
        if self.moves is not None:
            drive(self, self.moves.sync(name, follows, is_new), self._make, tell)

    def operate(self, what: str, tenant: str, tell: Tell) -> None:
        """An operator asks."""
        moves = self.moves
        if moves is None:
            return

        def ended(came: Any) -> None:
            self.operating.over()
            tell(came)

        steps = {
            "promote": lambda: moves.promote(tenant, GOLD),
            "demote": lambda: moves.demote(tenant),
        }
        self.operating.take(lambda: drive(self, steps[what](), self._make, ended))

    def _make(self, what: Do[Any], tell: Tell) -> None:
        """Do it in a while; perhaps this process dies before, or after, or nobody hears of it."""
        at = self.at
        at.judged.steps += 1
        if isinstance(what, KeepProducers):
            self.keeping.take(partial(self._made, what, partial(self._kept, tell)))
        else:
            self._made(what, tell)

    def _kept(self, tell: Tell, came: Any) -> None:
        self.keeping.over()
        tell(came)

    def _made(self, what: Do[Any], tell: Tell) -> None:
        at = self.at
        if at.dies():
            self.crash()
            return
        if at.fails():
            self.after(at.delay_ms(), lambda: tell(StoreUnavailable("not done")))
            return
        text = ""
        if isinstance(what, KeepProducers):
            assert self.moves is not None
            text = self.moves.producers_text()
        answered = not at.fails()

        def done() -> None:
            # It has left this process, and is done also when that has died.
            answer = at.do(what, text)
            if at.dies():
                self.crash()
            heard = answer if answered else StoreUnavailable("done, and not known")
            self.after(at.delay_ms(), lambda: tell(heard))

        at.under_way.append(done)
        at.world.at(at.delay_ms(), partial(at.do_now, done))


class Sender(Process):
    """One producer of tenants, through as many lives as it takes."""

    role = "producer"

    def __init__(self, at: TenantWorld, number: int) -> None:
        super().__init__(at.world, f"p{number}")
        self.at = at
        self.sending = True
        self._lives = self._number = 0
        self._anew()
        self.every(SYNC_MS, self._sync)
        self.every(at.dice.choice((40, 90, 200)), self._send)

    def _anew(self) -> None:
        self._lives += 1
        self.life = FollowedRoutes(f"{self.name}/{self._lives}")
        self._pending: dict[str, list[Message]] = defaultdict(list)
        self._appended: dict[str, int] = defaultdict(int)
        self._asked = 0

    def _now_s(self) -> float:
        return self.monotonic_ms() / 1_000

    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not any(self._pending.values())

    def _sync(self) -> None:
        if self.life.fenced:
            for messages in self._pending.values():
                for message in messages:
                    message.state = "refused"
            self._anew()
        self._ask()

    def _ask(self) -> None:
        self._asked += 1
        life, asked_s, asked = self.life, self._now_s(), self._asked
        router = self.at.routers[-1]

        def answered(answer: Any) -> None:
            if asked != self._asked or life is not self.life or isinstance(answer, Exception):
                return
            if self._now_s() - asked_s < SYNC_WAIT_MS / 1_000 and life.answered(asked_s, answer):
                self._ask()

        follows, is_new = life.follows(), not life.joined
        call(self, router, lambda tell: router.sync(life.name, follows, is_new, tell), answered)

    def _send(self) -> None:
        if not self.sending:
            return
        dice = self.at.dice
        tenant, key = dice.choice(TENANTS), dice.randrange(4)
        route = self.life.route(tenant, self._now_s())
        if route is None:
            return
        self._number += 1
        message = Message(self.name, tenant, key, self._number)
        queue = SHARED if route is Route.SHARED else isolated_queue(SHARED, tenant)
        self.life.begins(tenant)
        self.at.judged.sent.append(message)
        self._pending[queue].append(message)
        self.life.began(tenant, message)
        if len(self._pending[queue]) == 1:
            self._append(queue, self.life)

    def _append(self, queue: str, life: FollowedRoutes) -> None:
        """Send the oldest of a queue, again and again, until it is answered."""
        if life is not self.life or not self._pending[queue]:
            return
        message, number, logs = self._pending[queue][0], self._appended[queue], self.at.logs

        def answered(state: str) -> None:
            if life is not self.life or self._appended[queue] != number:
                return
            if state == "fenced":
                life.found_fenced()
                return
            message.state = state
            self._appended[queue] += 1
            del self._pending[queue][0]
            self._append(queue, life)

        def again() -> None:
            if self._appended[queue] == number and not life.fenced:
                self._append(queue, life)

        call(
            self, logs, lambda tell: logs.append(queue, life.name, number, message, tell), answered
        )
        self.after(APPEND_WAIT_MS, again)
