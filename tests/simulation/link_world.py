"""A small world of calls to one buffer: over connections that are cut, half open or slow, and past
them.

`LinkPlan`, `LinkLife`, `LinkRoom` and `CallTries` decide as they ship; here their calls are
carried. A connection belongs to the process that it was made to, and loses nothing while both ends
and the network are well; the way past it (Ray's) goes by the buffer's name. `Links.run` judges from
outside.
"""

from __future__ import annotations

import random
from functools import partial

from pxrs_ray.data.call_tries import CallTries
from pxrs_ray.data.link_plan import (
    ASK_AGAIN_S,
    PAUSE_MOST_S,
    SILENT_S,
    SPREAD_LEAST,
    SPREAD_MOST,
    WELCOME_S,
    LinkLife,
    LinkPlan,
    Sign,
)
from pxrs_ray.data.link_room import CALLS_MAX, LinkRoom
from pxrs_ray.errors import BufferAway, DeadlineExceeded, LeaseOver, PxrsError
from tests.simulation.simulator.scenario import Scenario
from tests.simulation.simulator.world import Action, Process, World

TRY_FOR_S = 60.0
ANSWER_S = 10.0
CALL_EVERY_MS = 700
TROUBLE_EVERY_MS = 20_000
RUN_MS = 240_000
LOOK_MS = int(min(WELCOME_S, SILENT_S) * 1_000)
DRIFT = 0.05
# A network that is well again has a connection again: after the silence is noticed, and a pause.
LINKED_AGAIN_MS = int(
    ((3 * SILENT_S + max(ASK_AGAIN_S, PAUSE_MOST_S) * SPREAD_MOST) * 1_000 + 3 * LOOK_MS)
    * (1 + DRIFT)
)


class Server(Process):
    """A process of the buffer."""

    role = "buffer"

    def __init__(self, links: Links, number: int) -> None:
        super().__init__(links.world, f"buffer {number}")
        self._links = links

    def serve(self, respond: Action) -> None:
        """Serve a call after a while."""
        self.after(self._links.dice.choice((1, 5, 60)), respond)


class Connection:
    """Both ends of one connection, and what is on its way."""

    def __init__(self, client: Client, server: Server) -> None:
        self.client, self.server = client, server
        self.life = LinkLife(client.now_s())
        self.room = LinkRoom()
        self.broken = False
        self.calls: dict[int, CallUnderWay] = {}
        # A half-open connection: the other end is gone, and nobody says so.
        self._waiting: list[int] = []
        self._to_server(lambda: self._to_client(self._welcomed))
        client.after(LOOK_MS, self.look)

    def _carry(self, target: Process, action: Action) -> None:
        """What is said arrives, in order, once the network lets it."""
        links = self.client.links
        if links.cut:
            links.held.append(partial(self._carry, target, action))
        else:
            self.client.world.at(links.delay_ms(), action, target)

    def _to_server(self, action: Action) -> None:
        self._carry(self.server, action)

    def _to_client(self, action: Action) -> None:
        self._carry(self.client, partial(self._heard, action))

    def _heard(self, action: Action) -> None:
        if not self.broken:
            self.life.heard(self.client.now_s())
            action()

    def _welcomed(self) -> None:
        self.life.welcome = True

    def call(self, number: int, call: CallUnderWay) -> None:
        """Make a call; who waits for its answer hears of the end of the connection too."""
        if not self.calls:
            self.life.heard(self.client.now_s())
        self.calls[number] = call
        self._to_server(partial(self._came, number))

    def _came(self, number: int) -> None:
        self._waiting.append(number)
        self._breathe()

    def _breathe(self) -> None:
        while self._waiting and self.room.has_room():
            number = self._waiting.pop(0)
            self.room.calls += 1
            if self.room.calls > CALLS_MAX:
                self.client.links.broken.append(f"{self.room.calls} calls are under way")
            self.server.serve(partial(self._served, number))

    def _served(self, number: int) -> None:
        self.room.calls -= 1
        self._to_client(partial(self._answered, number))
        self._breathe()

    def _answered(self, number: int) -> None:
        call = self.calls.pop(number, None)
        if not self.life.welcome:
            self.client.links.broken.append(f"call {number} was answered by a stranger")
        if call is not None:
            call.answered()

    def look(self) -> None:
        """As a line on an event loop looks, now and then."""
        if self.broken:
            return
        awaits = bool(self.calls) or not self.life.welcome
        sign = self.life.look(self.client.now_s(), awaits=awaits)
        if sign is Sign.ASK:
            self._to_server(lambda: self._to_client(lambda: None))
        elif sign is Sign.GIVE_UP:
            self.client.links.given_up += 1
            if self.client.links.well_for_ms() > int(3 * SILENT_S * 1_000) and self.server.alive:
                self.client.links.broken.append(f"{self.client.world.now_ms}: a good line is over")
            self.end()
        self.client.after(LOOK_MS, self.look)

    def end(self) -> None:
        """It is over: its calls hear that."""
        if self.broken:
            return
        self.broken = True
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.failed(BufferAway("the line broke"))


class CallUnderWay:
    """One call of a thread, until it is answered or given up."""

    def __init__(self, client: Client, number: int) -> None:
        self._client, self._number = client, number
        self._began_ms = client.world.now_ms
        self._tries = CallTries("a call", client.now_s(), TRY_FOR_S, ANSWER_S)
        self._try = 0
        self._make()

    def _make(self) -> None:
        self._try += 1
        client = self._client
        wait_ms = int(self._tries.wait_s(client.now_s()) * 1_000)
        client.after(wait_ms, partial(self._silent, self._try))
        client.make(self._number, self)

    def _silent(self, attempt: int) -> None:
        if attempt == self._try:
            self.failed(DeadlineExceeded("it did not answer"))

    def answered(self) -> None:
        """It is served."""
        if self._try:
            self._try = 0
            self._over()

    def failed(self, error: PxrsError) -> None:
        """A try has failed."""
        client = self._client
        if not self._try:
            return
        self._try += 1  # what this try still hears is too late
        attempt = self._try
        try:
            pause_s = self._tries.again_in_s(error, client.now_s())
        except PxrsError as raised:
            self._try = 0
            given_up = isinstance(raised, DeadlineExceeded) and raised is not error
            if not given_up or client.links.well_for_ms() > int(TRY_FOR_S * 1_000):
                client.links.broken.append(f"{client.world.now_ms}: it was told {raised!r}")
            self._over()
            return
        client.after(int(pause_s * 1_000), partial(self._again, attempt))

    def _again(self, attempt: int) -> None:
        if attempt == self._try:
            self._make()

    def _over(self) -> None:
        self.judge()
        self._client.under_way.pop(self._number, None)

    def judge(self) -> None:
        """Whether it has an end in time."""
        links = self._client.links
        took_ms = links.world.now_ms - self._began_ms
        if took_ms > (TRY_FOR_S + 1) * 1_000 * (1 + DRIFT):
            links.broken.append(f"call {self._number} took {took_ms} ms")


class Client(Process):
    """A process that calls the buffer again and again."""

    role = "client"

    def __init__(self, links: Links) -> None:
        super().__init__(links.world, "client")
        self.links = links
        self.line: Connection | None = None
        self.asked_ms: list[int] = []
        self.under_way: dict[int, CallUnderWay] = {}
        self._plan = LinkPlan(rests=True)
        self._numbers = 0
        self.every(CALL_EVERY_MS, self._call)

    def now_s(self) -> float:
        """The time by its clock."""
        return self.monotonic_ms() / 1_000

    def _spread(self) -> float:
        return self.links.dice.uniform(SPREAD_LEAST, SPREAD_MOST)

    def _call(self) -> None:
        self._numbers += 1
        self.under_way[self._numbers] = CallUnderWay(self, self._numbers)

    def make(self, number: int, call: CallUnderWay) -> None:
        """One try: by the connection where there is one, else past it."""
        line = self._line()
        if line is not None:
            self.links.by_line += 1
            line.call(number, call)
            return
        links = self.links
        server = links.server
        if not server.alive:
            self.after(links.delay_ms(), partial(call.failed, BufferAway("its actor is gone")))
        elif links.refusing:
            self.after(links.delay_ms(), partial(call.failed, LeaseOver("it has none")))
        elif not links.cut:
            respond = partial(self.world.at, links.delay_ms(), call.answered, self)
            self.world.at(links.delay_ms(), partial(server.serve, respond), server)

    def _line(self) -> Connection | None:
        line = self.line
        if line is not None and not line.broken:
            if line.life.welcome:
                return line
            if line.life.is_late(self.now_s()):
                line.end()
            return None
        now_s = self.now_s()
        if line is not None:
            self.line = None
            lived_s = now_s - line.life.since_s
            self._plan.broke(now_s, lived_s, self._spread(), welcome=line.life.welcome)
        if self._plan.called(now_s):
            self.asked_ms.append(self.world.now_ms)
            self.after(self.links.delay_ms(), self._told)
        return None

    def _told(self) -> None:
        """The buffer has said where it listens, or nobody has."""
        links = self.links
        if links.cut or not links.server.alive or links.server.frozen:
            self._plan.found_none(self.now_s(), self._spread())
            return
        self._plan.took()
        self.line = Connection(self, links.server)


class Links:
    """The client, the buffer and the network of one seed, and what befalls them."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, Scenario())
        self.dice = random.Random(f"links {seed}")
        self.broken: list[str] = []
        self.by_line = self.given_up = 0
        self.cut = False
        self.refusing = False
        self.held: list[Action] = []
        self._slow_ms = 0
        self._well_ms = 0
        self._lives = 0
        self.server = Server(self, 0)
        self.client = Client(self)
        self.world.at(TROUBLE_EVERY_MS, self._trouble)
        self.world.at(LINKED_AGAIN_MS, self._judge)

    def delay_ms(self) -> int:
        """How long something is under way."""
        return 1 + self.dice.randrange(3) + (self.dice.randrange(self._slow_ms or 1))

    def well_for_ms(self) -> int:
        """For how long nothing has been wrong."""
        ill = self.cut or self.refusing or self._slow_ms or not self.server.alive
        if ill or self.server.frozen:
            return 0
        return self.world.now_ms - self._well_ms

    def _trouble(self) -> None:
        dice, world = self.dice, self.world
        for_ms = dice.choice((300, 6_000, 25_000, 45_000))
        kind = dice.choice(("cut", "freeze", "restart", "half open", "slow", "lease"))
        if kind == "cut":
            self.cut = True
        elif kind == "freeze":
            self.server.freeze()
        elif kind == "slow":
            self._slow_ms = 4_000
        elif kind == "lease":
            self.refusing = True
        else:
            # Who dies with its host says nothing: the connection is half open.
            self._restart(tells=kind == "restart")
        world.at(for_ms, self._heal)

    def _restart(self, *, tells: bool) -> None:
        self.server.crash()
        line = self.client.line
        if tells and line is not None:
            self.client.after(self.delay_ms(), line.end)
        self._lives += 1

    def _heal(self) -> None:
        if not self.server.alive:
            self.server = Server(self, self._lives)
        self.server.thaw()
        self.cut, self.refusing, self._slow_ms = False, False, 0
        held, self.held = self.held, []
        for carry in held:
            carry()
        self._well_ms = self.world.now_ms
        pause_ms = self.dice.choice((2_000, TROUBLE_EVERY_MS, LINKED_AGAIN_MS + 10_000))
        self.world.at(pause_ms, self._trouble)

    def _judge(self) -> None:
        """Where all has been well for long, calls go by a connection, to the process that is."""
        if self.well_for_ms() > LINKED_AGAIN_MS:
            line = self.client.line
            if line is None or line.broken or line.server is not self.server:
                self.broken.append(f"{self.world.now_ms}: there is no connection again")
        self.world.at(1_000, self._judge)

    def run(self) -> list[str]:
        """Let it run; what was promised of it and did not hold."""
        self.world.run_until(RUN_MS)
        for call in self.client.under_way.values():
            call.judge()
        asked = self.client.asked_ms
        least_ms = ASK_AGAIN_S * SPREAD_LEAST * 1_000 * (1 - DRIFT)
        if len(asked) > RUN_MS / least_ms + self._lives + 10:
            self.broken.append(f"it was asked for a connection {len(asked)} times")
        self.world.close()
        return self.broken
