"""Tenants: where messages go, who serves them, and a move between queues under load."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from pxrs_ray.errors import ConfigError, IllegalTransition, NotFound
from pxrs_ray.steps import carry
from pxrs_ray.tenants.migration import Phase, Route, TenantMove
from pxrs_ray.tenants.profile import Destination, Service, TenantDirectory, TenantProfile
from pxrs_ray.tenants.tenant_document import TENANTS, KeptMove
from pxrs_ray.tenants.tenant_moves import STEP_MOST_S, ReadProgress, TenantMoves, TenantProgress

DIRECTORY = TenantDirectory(
    services={
        "rules": Service("re", "main", 10),
        "core": Service("core", "tb_core", 10, prefix="prod"),
    },
    profiles={
        "gold": TenantProfile("gold", isolated=True, partitions=4),
        "silver": TenantProfile("silver", weight=2.0),
    },
    tenants={"acme": "gold", "initech": "silver"},
)


def test_messages_go_to_the_shared_queue_or_to_the_tenants_own() -> None:
    shared = DIRECTORY.resolve("rules", "initech", b"device-1")
    assert (shared.queue, shared.tenant) == ("main", None) and 0 <= shared.partition < 10
    own = DIRECTORY.resolve("rules", "acme", b"device-1")
    assert (own.queue, own.tenant) == ("main.isolated.acme", "acme") and own.partition < 4
    assert own == DIRECTORY.resolve("rules", "acme", "device-1")
    assert DIRECTORY.resolve("rules", None, b"device-1").tenant is None
    assert DIRECTORY.resolve("core", "acme", b"x").queue == "prod.tb_core.isolated.acme"
    assert Destination("rules", "main", None, 7).full_name == "main.7"
    with pytest.raises(NotFound, match="did you mean 'rules'"):
        DIRECTORY.resolve("rule", "acme", b"x")


def test_an_entity_stays_on_its_partition_and_entities_spread() -> None:
    places = {DIRECTORY.resolve("rules", None, b"device-%d" % n).partition for n in range(500)}
    assert places == set(range(10))


def test_names_are_those_that_operators_know() -> None:
    service = DIRECTORY.services["core"]
    assert service.notifications == "prod.tb_core.notifications"
    assert service.group(None) == "prod.core.tb_core-consumer"
    assert service.group("acme", 3) == "prod.core.tb_core-isolated-acme-consumer-3"


def test_servers_of_a_profile_serve_its_tenants_and_no_others() -> None:
    servers: dict[str, list[str]] = {"s1": ["gold"], "s2": ["gold", "other"], "s3": [], "s4": []}
    assert DIRECTORY.serving("acme", servers).servers == ("s1", "s2")
    assert DIRECTORY.serving("initech", servers).servers == ("s3", "s4")
    assert DIRECTORY.serving(None, servers).alarm == ""


def test_without_a_server_of_its_own_the_shared_ones_help_and_an_alarm_says_so() -> None:
    found = DIRECTORY.serving("acme", {"s3": [], "s4": ["other"]})
    assert found.servers == ("s3",) and "no server is assigned to its profile 'gold'" in found.alarm
    nobody = DIRECTORY.serving("acme", {"s4": ["other"]})
    assert nobody.servers == () and "no shared one either" in nobody.alarm
    assert DIRECTORY.responsible("acme", 0, {"s4": ["other"]}) is None


def test_partitions_of_a_tenant_go_round_its_servers() -> None:
    servers: dict[str, list[str]] = {f"s{n}": ["gold"] for n in range(3)}
    owners = [DIRECTORY.responsible("acme", partition, servers) for partition in range(6)]
    assert owners[:3] == owners[3:] and set(owners) == set(servers)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'gold'"):
        TenantDirectory({}, DIRECTORY.profiles, {"acme": "golt"})
    with pytest.raises(ConfigError):
        TenantProfile("x", weight=0)


# --- moving ---------------------------------------------------------------------------------------


@dataclass
class Producer:
    """Sends numbers under its own key; learns late, dies, comes back under another name."""

    name: str
    sent: int = 0
    route: Route = Route.SHARED
    version: int = 0
    # What was sent and is not in a log yet: a flush waits for it.
    flying: list[tuple[str, str, int]] = field(default_factory=list)


class World:
    """Two queues of one tenant; a single shared partition, with others' messages in between."""

    def __init__(self, seed: int, *, careful: bool = True) -> None:
        self.draw = random.Random(seed)
        self.move = TenantMove()
        self.careful = careful
        self.logs: dict[str, list[tuple[str, int]]] = {"shared": [], "isolated": []}
        self.passed = {"shared": 0, "isolated": 0}
        self.processed: list[tuple[str, int]] = []
        self.names = 0
        self.held = 0
        self.producers = [self.new_producer() for _ in range(3)]

    def new_producer(self) -> Producer:
        self.names += 1
        name = f"p{self.names}"
        self.move.joined(name)
        return Producer(name, route=self.move.route, version=self.move.version)

    def send(self, producer: Producer) -> None:
        if producer.route is Route.HOLD:
            self.held += 1
            return
        queue = "shared" if producer.route is Route.SHARED else "isolated"
        producer.flying.append((queue, producer.name, producer.sent))
        producer.sent += 1

    def land(self, producer: Producer) -> None:
        if producer.flying:
            queue, name, number = producer.flying.pop(0)
            self.logs[queue].append((name, number))

    def learn(self, producer: Producer) -> None:
        """What a producer does when it hears of another route: flush, switch, say so."""
        if producer.version == self.move.version:
            return
        while producer.flying and self.careful:
            self.land(producer)
        producer.version, producer.route = self.move.version, self.move.route
        self.move.switched[producer.name] = producer.version

    def consume(self, queue: str) -> None:
        if queue == "isolated" and not self.move.isolated_is_read and self.careful:
            return
        if self.passed[queue] < len(self.logs[queue]):
            name, number = self.logs[queue][self.passed[queue]]
            self.passed[queue] += 1
            if name != "others":
                self.processed.append((name, number))

    def look(self) -> None:
        unread = len(self.logs["isolated"]) - self.passed["isolated"]
        ends, passed = {0: len(self.logs["shared"])}, {0: self.passed["shared"]}
        self.move.look(ends, passed, unread)

    def step(self) -> None:
        event = self.draw.random()
        producer = self.draw.choice(self.producers)
        if event < 0.25:
            self.send(producer)
        elif event < 0.50:
            self.land(producer)
        elif event < 0.55:
            self.learn(producer)
        elif event < 0.57:
            # It dies with what was in flight either there or not; a new one takes its place.
            while producer.flying and self.draw.random() < 0.5:
                self.land(producer)
            producer.sent -= len(producer.flying)
            producer.flying.clear()
            self.move.gone(producer.name)
            self.producers.remove(producer)
            self.producers.append(self.new_producer())
        elif event < 0.60:
            self.logs["shared"] += [("others", 0)] * self.draw.randrange(20)
        elif event < 0.75:
            self.consume("isolated")
        elif event < 0.95:
            self.consume("shared")
        else:
            self.look()

    def run(self, steps: int) -> None:
        for number in range(steps):
            if number % 400 == 200:
                if self.move.phase is Phase.SHARED:
                    self.move.promote()
                elif self.move.phase is Phase.ISOLATED:
                    self.move.demote()
            self.step()
        while any(p.flying for p in self.producers) or any(
            self.passed[q] < len(self.logs[q]) for q in self.logs
        ):
            for producer in self.producers:
                self.land(producer)
                self.learn(producer)
            self.consume("isolated")
            self.consume("shared")
            self.look()

    def wrong(self) -> list[str]:
        """Producers whose messages were lost, doubled or processed in another order."""
        found: dict[str, list[int]] = {}
        for name, number in self.processed:
            found.setdefault(name, []).append(number)
        return [name for name, numbers in found.items() if numbers != list(range(len(numbers)))]


def test_moving_to_and_fro_under_load_loses_and_reorders_nothing() -> None:
    turns = 0
    for seed in range(150):
        world = World(seed)
        world.run(4_000)
        assert world.wrong() == [], f"seed {seed}"
        logged = sum(len([e for e in log if e[0] != "others"]) for log in world.logs.values())
        assert len(world.processed) == logged
        turns += world.move.version
    assert turns > 600


def test_without_flush_and_gate_the_same_moves_reorder() -> None:
    assert any(_wrong(seed) for seed in range(20))


def _wrong(seed: int) -> list[str]:
    world = World(seed, careful=False)
    world.run(4_000)
    return world.wrong()


def test_a_producer_that_has_not_switched_is_waited_for() -> None:
    move = TenantMove()
    move.joined("p1")
    move.promote()
    assert move.route is Route.ISOLATED and not move.isolated_is_read
    assert not move.look({0: 5}, {0: 5}, 0)
    move.switched["p1"] = move.version
    assert move.look({0: 5}, {0: 3}, 0) and move.phase is Phase.GATED
    assert not move.look({0: 9}, {0: 4}, 0)
    assert move.look({0: 9}, {0: 5}, 0) and move.settled and move.isolated_is_read


def test_sharing_again_holds_producers_only_when_little_is_left() -> None:
    move = TenantMove(Phase.ISOLATED, 1)
    move.joined("p1")
    move.demote()
    routes = []
    for unread in (100_000, 10):
        move.look({}, {}, unread)
        routes.append(move.route)
    assert routes == [Route.ISOLATED, Route.HOLD]
    assert not move.look({}, {}, 0), "the producer has not said that it holds"
    move.switched["p1"] = move.version
    assert not move.look({}, {}, 1)
    assert move.look({}, {}, 0) and move.phase is Phase.SHARED


def test_who_is_silent_for_too_long_is_not_waited_for() -> None:
    move = TenantMove()
    move.joined("p1")
    move.promote()
    move.gone("p1")
    assert move.look({}, {}, 0) and move.switched == {}


def test_wishes_against_the_stream_are_refused_and_change_nothing() -> None:
    move = TenantMove()
    move.promote()
    with pytest.raises(IllegalTransition):
        move.demote()
    move = TenantMove(Phase.HOLDING, 3)
    with pytest.raises(IllegalTransition):
        move.promote()
    assert move == TenantMove(Phase.HOLDING, 3)
    move = TenantMove(Phase.DRAINING, 3)
    move.promote()
    assert move.phase is Phase.ISOLATED


def test_a_service_names_the_groups_that_tenants_really_has() -> None:
    service = Service("billing", "orders", 4, prefix="eu")
    assert service.own_group(None) == "eu.billing"
    assert service.own_group("acme") == "eu.billing.isolated.acme"


def test_a_tenant_whose_group_does_not_answer_holds_up_no_other() -> None:
    profile = TenantProfile("gold", isolated=True)
    now_s = [0.0]
    moves = TenantMoves("q", 20.0, lambda: now_s[0])
    kept = {name: KeptMove(Phase.GATED, 1, {}, profile) for name in ("away", "there")}
    moves.begin(TENANTS.encode_text(kept), "")
    for _ in range(20):  # until every producer that a former router knew was heard, or is fenced
        now_s[0] += STEP_MOST_S
        moves.tick()

    async def make(what: object) -> object:
        if isinstance(what, ReadProgress):
            if what.tenant == "away":
                raise NotFound("no such group")
            return TenantProgress({}, {}, 0)
        return None

    with pytest.raises(NotFound):
        asyncio.run(carry(moves.look(), make))
    assert moves.moves["there"].phase is Phase.ISOLATED


def test_a_promotion_that_is_refused_changes_nothing() -> None:
    silver, gold = TenantProfile("silver", isolated=True), TenantProfile("gold", isolated=True)
    moves = TenantMoves("q", 20.0, lambda: 0.0)
    moves.begin(TENANTS.encode_text({"a": KeptMove(Phase.HOLDING, 2, {}, silver)}), "")

    async def make(what: object) -> None:
        raise AssertionError(f"{what} was done")

    with pytest.raises(IllegalTransition):
        asyncio.run(carry(moves.promote("a", gold), make))
    assert moves.profiles["a"] is not gold and moves.profiles["a"].name == "silver"
