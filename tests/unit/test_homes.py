"""Where slots are at home, and that a home changes by the rules alone, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pxrs_ray.errors import StoreSchemaError
from pxrs_ray.topology.homes import FORM, HOMES, Home, Homes, SlotSeen, homes_from, settle
from pxrs_ray.topology.node_seen import NodeSeen

AWAY = SlotSeen(answers=False, lease_over=True, runs=False)
SERVES = SlotSeen(answers=True, lease_over=False, runs=True)


def nodes(*numbers: int) -> list[NodeSeen]:
    return [NodeSeen(f"n{n}", f"10.0.0.{n}", f"d{n}", f"b{n}") for n in numbers]


def placed(slots: int, *numbers: int) -> Homes:
    return settle(Homes(), dict.fromkeys(range(slots), AWAY), nodes(*numbers), 0).homes


@pytest.mark.parametrize(("slots", "count"), [(3, 3), (4, 3), (8, 3), (1, 3), (5, 1)])
def test_slots_are_spread_as_evenly_as_can_be_and_always_the_same(slots: int, count: int) -> None:
    seen = list(range(1, count + 1))
    homes = placed(slots, *seen)
    assert homes == placed(slots, *reversed(seen))
    shares = [sum(h.node == f"n{n}" for h in homes.slots.values()) for n in seen]
    assert sum(shares) == slots
    assert max(shares) - min(shares) <= 1


def test_nodes_that_go_have_no_disk_or_have_no_cpu_get_nothing() -> None:
    draining, bare, head, one = nodes(1, 2, 3, 4)
    found = settle(
        Homes(),
        {0: AWAY, 1: AWAY},
        [replace(draining, draining=True), replace(bare, disk=""), replace(head, cpus=0), one],
        0,
    )
    assert {home.node for home in found.homes.slots.values()} == {"n4"}
    assert settle(Homes(), {0: AWAY}, [replace(head, cpus=0)], 0).homes.slots[0].node == "n3"


def test_a_slot_without_a_home_goes_where_its_logs_lie() -> None:
    first, second = nodes(1, 2)
    found = settle(
        Homes(), {0: AWAY, 1: AWAY}, [first, replace(second, slots={0: (1, 1), 1: (1, 1)})], 0
    )
    assert [found.homes.slots[slot].node for slot in (0, 1)] == ["n2", "n2"]
    assert found.starts == (0, 1)


def test_of_two_copies_of_a_slot_the_one_that_was_served_from_last_is_its_home() -> None:
    stale, first = (NodeSeen(n, h, disk=d) for n, h, d in (("a", "1", "d1"), ("b", "2", "d2")))
    nodes = [
        replace(stale, slots={0: (1, 9)}),
        replace(first, slots=dict.fromkeys(range(3), (2, 4))),
    ]
    found = settle(Homes(), dict.fromkeys(range(3), AWAY), nodes, 0)
    assert {home.disk for home in found.homes.slots.values()} == {"d2"}


def test_one_whose_host_is_away_waits_and_the_others_do_not() -> None:
    homes = placed(2, 1, 2)
    found = settle(homes, {0: SERVES, 1: AWAY}, nodes(1), 5_000)
    assert dict(found.waits) == {1: "waits for host 10.0.0.2, away for 0 s"}
    assert found.starts == ()
    later = settle(found.homes, {0: SERVES, 1: AWAY}, nodes(1, 3), 45_000)
    assert dict(later.waits) == {1: "waits for host 10.0.0.2, away for 40 s"}
    assert later.homes == found.homes


def test_a_disk_that_appears_on_another_node_is_home_under_a_new_term() -> None:
    homes = placed(1, 1)
    waits = settle(homes, {0: AWAY}, [], 1).homes
    back = replace(nodes(1)[0], node="n9", boot="b9")
    found = settle(waits, {0: AWAY}, [back], 2)
    assert found.starts == (0,)
    assert found.homes.slots[0] == Home("d1", "n9", "10.0.0.1", 2, "b9", since=1)


def test_a_new_node_of_its_host_is_tried_before_anybody_has_looked() -> None:
    homes = placed(1, 1)
    waits = settle(homes, {0: AWAY}, [], 1).homes
    new = [NodeSeen("n9", "10.0.0.1", unknown=True), NodeSeen("n8", "10.0.0.2", unknown=True)]
    found = settle(waits, {0: AWAY}, new, 2)
    assert found.starts == (0,)
    assert found.homes.slots[0] == Home("d1", "n9", "10.0.0.1", 2, since=1)
    # It is not there: the buffer has said so, and then somebody has looked.
    missed = [replace(new[0], unknown=False, disk="another"), new[1]]
    seen = {0: SlotSeen(answers=True, runs=True)}
    assert 0 in settle(found.homes, seen, missed, 3).waits


def test_a_folder_that_was_emptied_is_not_the_disk() -> None:
    homes = placed(1, 1)
    emptied = replace(nodes(1)[0], disk="another")
    found = settle(homes, {0: AWAY}, [emptied], 7)
    assert dict(found.waits) == {0: "waits for disk d1 on host 10.0.0.1, away for 0 s"}
    assert found.starts == ()
    # Also when the host has come back as another node.
    again = settle(found.homes, {0: AWAY}, [replace(emptied, node="n9")], 2_007)
    assert dict(again.waits) == {0: "waits for disk d1 on host 10.0.0.1, away for 2 s"}


def test_nobody_is_let_in_beside_one_that_may_still_serve() -> None:
    """A disk on the network, and a host that the coordinator does not hear."""
    homes = placed(1, 1)
    shown = [replace(nodes(2)[0], disk="d1")]
    lives = SlotSeen(answers=False, lease_over=False, runs=True)
    assert settle(homes, {0: lives}, shown, 1).starts == ()
    found = settle(homes, {0: replace(lives, lease_over=True)}, shown, 1)
    assert found.starts == (0,)
    assert found.homes.slots[0].node == "n2"


def test_a_machine_that_started_anew_has_nobody_of_before() -> None:
    """Ray has not noticed that the old node is gone, and the lease is not over."""
    homes = placed(1, 1)
    old = nodes(1)[0]
    new = replace(old, node="n9", boot="b9")
    lives = SlotSeen(answers=False, lease_over=False, runs=True)
    assert settle(homes, {0: lives}, [old, new], 1).homes == homes
    assert settle(homes, {0: lives}, [new], 1).homes.slots[0].node == "n9"


def test_what_has_nothing_to_lose_moves_when_its_lease_is_over() -> None:
    homes = placed(2, 1, 2)
    memory = replace(AWAY, in_memory=True)
    found = settle(homes, {0: SERVES, 1: memory}, nodes(1), 1)
    assert found.starts == (1,)
    assert found.homes.slots[1].node == "n1"
    assert found.homes.slots[1].term == 2
    serving = replace(memory, lease_over=False)
    assert settle(homes, {0: SERVES, 1: serving}, nodes(1), 1).starts == ()


def test_another_disk_is_taken_when_it_was_said_and_not_before() -> None:
    homes = placed(1, 1)
    waits = settle(homes, {0: AWAY}, nodes(2), 1_000).homes
    assert settle(waits, {0: AWAY}, nodes(2), 61_000).homes == waits
    found = settle(waits, {0: AWAY}, nodes(2), 61_000, {0})
    assert found.homes.slots[0].disk == "d2"
    given_up = waits.with_given_up(0)
    lives = replace(AWAY, lease_over=False)
    assert settle(given_up, {0: lives}, nodes(2), 2_000).homes == given_up
    assert settle(given_up, {0: AWAY}, nodes(2), 2_000).homes.slots[0].term == 2
    # Its host is back before that: nothing is lost.
    back = settle(given_up, {0: AWAY}, nodes(1, 2), 2_000).homes.slots[0]
    assert (back.disk, back.given_up, back.away_since_ms) == ("d1", False, None)


def test_queues_keep_their_id_and_what_was_made() -> None:
    homes = Homes().with_queue("q", "one").with_queue("q", "two").with_made("q", [1, 0])
    assert homes.queues["q"].queue_id == "one"
    assert homes.is_made("q", 1)
    assert not homes.is_made("q", 2)
    again = homes.without_queue("q").with_queue("q", "two")
    assert again.queues["q"].queue_id == "two"
    assert not again.is_made("q", 1)


def test_a_document_of_newer_code_is_refused() -> None:
    assert homes_from("") == Homes()
    with pytest.raises(StoreSchemaError, match="newer version"):
        homes_from(HOMES.encode_text(Homes(form=FORM + 1)))


# --- a random walk ------------------------------------------------------------------------------

HOSTS = 3
SLOTS = 4
LEASE_MS = 100


@dataclass
class Process:
    """A buffer, as it is in truth: it serves until its own lease is over."""

    slot: int
    term: int
    node: str
    host: int
    disk: str
    until_ms: int


@dataclass
class Host:
    number: int
    disk: str
    on: bool = True
    cut: bool = False
    node: str = ""
    boot: str = ""


@dataclass
class World:
    """Hosts, what Ray says of them, buffers, the registry's document, and one coordinator."""

    now_ms: int = 1_000
    hosts: list[Host] = field(default_factory=list)
    told: dict[str, NodeSeen] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    stored: Homes = field(default_factory=Homes)
    heard_ms: dict[int, int] = field(default_factory=dict)
    numbers: int = 0

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def up(self, host: Host) -> None:
        host.on, host.cut = True, False
        host.node, host.boot = f"n{self.number()}", f"b{self.number()}"
        seen = NodeSeen(host.node, f"10.0.0.{host.number}", host.disk, host.boot)
        self.told[host.node] = seen


class Walk(RuleBasedStateMachine):
    """Everything that can happen to hosts, in any order; the coordinator dies anywhere."""

    @initialize(shared=st.booleans(), replace_after_ms=st.none() | st.integers(200, 2_000))
    def begin(self, shared: bool, replace_after_ms: int | None) -> None:
        self.world = World()
        self.replace_after_ms = replace_after_ms
        for number in range(HOSTS):
            host = Host(number, "d-net" if shared and number else f"d{number}")
            self.world.hosts.append(host)
            self.world.up(host)

    @rule(ms=st.integers(1, 150))
    def time_goes_on(self, ms: int) -> None:
        self.world.now_ms += ms

    @rule(at=st.integers(0, HOSTS - 1))
    def power_off(self, at: int) -> None:
        host = self.world.hosts[at]
        host.on = False
        world = self.world
        world.processes = [p for p in world.processes if p.node != host.node]

    @rule(at=st.integers(0, HOSTS - 1), emptied=st.sampled_from([False, False, False, True]))
    def power_on(self, at: int, emptied: bool) -> None:
        host = self.world.hosts[at]
        if not host.on:
            if emptied:
                host.disk = f"d{self.world.number()}-new"
            self.world.up(host)

    @rule(at=st.integers(0, HOSTS - 1))
    def cut(self, at: int) -> None:
        self.world.hosts[at].cut = True

    @rule(at=st.integers(0, HOSTS - 1))
    def heal(self, at: int) -> None:
        host = self.world.hosts[at]
        if host.cut and host.on:
            host.cut = False
            if host.node not in self.world.told:  # declared dead: its raylet ends, with all of it
                self.power_off(at)

    @rule(at=st.integers(0, HOSTS - 1))
    def ray_notices(self, at: int) -> None:
        host = self.world.hosts[at]
        alive = {h.node for h in self.world.hosts if h.on and not h.cut}
        if host.node not in alive:
            self.world.told.pop(host.node, None)
        for node in [n for n in self.world.told if n not in {h.node for h in self.world.hosts}]:
            self.world.told.pop(node)

    @rule()
    def ping(self) -> None:
        """Whoever can be reached at the home that is stored gets a lease for its term."""
        for process in self.world.processes:
            home = self.world.stored.slots.get(process.slot)
            host = self.world.hosts[process.host]
            if home and (process.term, process.node) == (home.term, home.node) and not host.cut:
                process.until_ms = self.world.now_ms + LEASE_MS
                self.world.heard_ms[process.slot] = self.world.now_ms

    @rule()
    def the_coordinator_is_another_one(self) -> None:
        """It knows nothing of leases, and waits as if each had begun when it started."""
        self.world.heard_ms = dict.fromkeys(range(SLOTS), self.world.now_ms)

    @rule(slot=st.integers(0, SLOTS - 1))
    def somebody_gives_up_a_slot(self, slot: int) -> None:
        home = self.world.stored.slots.get(slot)
        if home is not None and home.away_since_ms is not None:
            self.world.stored = self.world.stored.with_given_up(slot)

    def _seen(self) -> dict[int, SlotSeen]:
        world = self.world
        found = {}
        for slot in range(SLOTS):
            home = world.stored.slots.get(slot)
            heard_ms = world.heard_ms.get(slot, -LEASE_MS)
            mine = [p for p in world.processes if home and (p.slot, p.node) == (slot, home.node)]
            reached = bool(mine) and not world.hosts[mine[0].host].cut
            found[slot] = SlotSeen(reached, world.now_ms >= heard_ms + LEASE_MS, bool(mine))
        return found

    @rule(acts=st.booleans())
    def settles(self, acts: bool) -> None:
        """It dies between what it writes and what it does, or not."""
        world, seen = self.world, self._seen()
        nodes = list(world.told.values())
        overdue = {slot for slot, home in world.stored.slots.items() if self._is_overdue(home)}
        found = settle(world.stored, seen, nodes, world.now_ms, overdue)
        self._check_changes(world.stored, found.homes, seen)
        assert not set(found.starts) & set(found.waits)
        world.stored = found.homes
        if acts:
            for slot in found.starts:
                self._start(slot)

    def _check_changes(self, before: Homes, after: Homes, seen: dict[int, SlotSeen]) -> None:
        for slot, home in before.slots.items():
            now = after.slots[slot]
            moved = (now.disk, now.node) != (home.disk, home.node)
            assert now.term == home.term + moved
            if now.disk != home.disk:
                assert seen[slot].lease_over
                assert home.given_up or self._is_overdue(home)

    def _is_overdue(self, home: Home) -> bool:
        since_ms, after_ms = home.away_since_ms, self.replace_after_ms
        if since_ms is None or after_ms is None:
            return False
        return self.world.now_ms - since_ms >= after_ms

    def _start(self, slot: int) -> None:
        """Make the buffer at its home; another of its name is ended first, where it is heard."""
        world, home = self.world, self.world.stored.slots[slot]
        for process in [p for p in world.processes if p.slot == slot]:
            if not world.hosts[process.host].cut:
                world.processes.remove(process)
        for host in world.hosts:
            held = any(p.slot == slot and p.host == host.number for p in world.processes)
            if host.node == home.node and host.on and not host.cut and not held:
                made = Process(slot, home.term, home.node, host.number, host.disk, 0)
                world.processes.append(made)

    @invariant()
    def one_serves_a_slot_at_a_time(self) -> None:
        if not hasattr(self, "world"):
            return
        for slot in range(SLOTS):
            serving = [
                p for p in self.world.processes if p.slot == slot and p.until_ms > self.world.now_ms
            ]
            assert len(serving) <= 1
            for process in serving:
                assert process.term <= self.world.stored.slots[slot].term

    @precondition(lambda self: hasattr(self, "world"))
    @rule()
    def all_is_well_again(self) -> None:
        """Every host is on and heard: whoever waited for one that kept its disk is at home."""
        for at in range(HOSTS):
            self.heal(at)
            self.power_on(at, emptied=False)
            self.ray_notices(at)
        self.time_goes_on(LEASE_MS)
        self.settles(acts=True)
        self.ping()
        shown = {host.disk for host in self.world.hosts}
        for slot, home in self.world.stored.slots.items():
            if home.disk in shown:
                assert home.away_since_ms is None
                assert any(
                    p.slot == slot and p.until_ms > self.world.now_ms for p in self.world.processes
                )


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
