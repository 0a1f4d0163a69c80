"""A plan of faults, made from a seed alone, and the carrying out of it on three hosts."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.hosts.hosts import Hosts, Way
from tests.hosts.judge import Verdict
from tests.hosts.world import Desk, Load, Unanswered, World

COUNT = 3
HEAD = 0
PER_SECOND = 40
WORK_S = 0.005
AWAY_S_MAX = 25.0
FROZEN_S_MAX = 6.0
PAUSE_S = (1.0, 8.0)
# What is frozen in the middle of a handler is in its hands for as long as that.
OVERLAP_S_MAX = FROZEN_S_MAX + 1.0


@dataclass(frozen=True)
class Fault:
    """One step: what, on which host (or of which number), for how long, and the pause after it."""

    what: str
    number: int
    for_s: float
    pause_s: float


Plan = list[Fault]

WEIGHTS = {
    "kill buffer": 5,
    "kill coordinator": 3,
    "kill consumer": 4,
    "freeze buffer": 2,
    "freeze consumer": 2,
    "cut both": 3,
    "cut in": 2,
    "cut out": 2,
    "power": 3,
}
# What else befalls hosts where logs have replicas: one comes back with an empty disk, or never.
OF_REPLICAS = {"lose": 3}
REPLACED_AFTER_S = 10
IN_SYNC_S = 90.0


def make_plan(seed: int, seconds: float, *, power: bool = True, replicas: int = 1) -> Plan:
    """Every kind once in a random order, then as the dice fall; more than fits into the time."""
    dice = random.Random(seed)
    every = WEIGHTS if replicas == 1 else WEIGHTS | OF_REPLICAS
    kinds = [kind for kind in every if power or kind != "power"]
    first = dice.sample(kinds, len(kinds))
    plan = []
    planned_s = 0.0
    while planned_s < seconds:
        weights = [every[kind] for kind in kinds]
        what = first.pop() if first else dice.choices(kinds, weights)[0]
        longest = FROZEN_S_MAX if what.startswith("freeze") else AWAY_S_MAX
        fault = Fault(
            what, dice.randrange(1 << 16), dice.uniform(0.5, longest), dice.uniform(*PAUSE_S)
        )
        plan.append(fault)
        planned_s += fault.pause_s + (0 if what.startswith("kill") else fault.for_s)
    return plan


class World3:
    """Three hosts, a topology on them, a producer on each, and consumers."""

    def __init__(self, durability: str, replicas: int = 1) -> None:
        self.durability, self.replicas = durability, replicas
        self.hosts = Hosts(COUNT)
        self.stuck: set[int] = set()
        self._loads: dict[int, Load] = {}
        try:
            self.hosts.start_ray()
            options: dict[str, Any] = {"queue": {"durability": durability}}
            if replicas > 1:
                options |= {"replicas": replicas, "min_isr": replicas - 1}
                options |= {"replace_host_after_s": REPLACED_AFTER_S}
            self.world = World(self.hosts, Desk(self.hosts[HEAD]), **options).deploy()
            self.world.start(work_s=WORK_S)
        except BaseException:
            self.hosts.close()
            raise
        self.produce()
        try:
            for load in self._loads.values():
                load.wait_up()
        except BaseException:
            self.hosts.close()
            raise

    def produce(self) -> None:
        """A producer on each host that is on and has none."""
        for host in self.hosts:
            load = self._loads.get(host.index)
            if host.is_on and (load is None or not load.lives):
                option = f"--per-second={PER_SECOND}"
                self._loads[host.index] = self.world.begin_load(host.index, option)

    def whole(self) -> None:
        """Heal, thaw, bring back: no fault is left, and whatever the product does is its own."""
        self.hosts.heal()
        for host in self.hosts:
            if not host.is_on:
                self.hosts.power_on(host.index)
            host.thaw()
        anew = self.hosts.ray_where_missing()
        if anew or not self.world.desk.is_open:
            self.world.desk.close()
            self.world.desk = Desk(self.hosts[HEAD])
        if anew:
            # Ray's own GCS has ended, and with it every actor: whoever operates it deploys again.
            print("hosts: Ray's head has ended: deployed again", flush=True)
            self.world.deploy()
            self.world.start(work_s=WORK_S)
        # A node that Ray took for dead does not come back by itself: its raylet ends when it hears.
        known = self.world.desk("nodes")
        for host in self.hosts:
            if host.address not in known:
                host.stop_ray()
                self.hosts.ray_again(host.index)
        self.produce()

    def come_to_rest(self, seconds: float) -> Verdict:
        """Wait until every partition works again (or is `stuck`), end the load, judge."""
        self.whole()
        whole_s = time.monotonic()
        every = set(range(self.world.partitions))
        while self.stuck != (left := every - self.world.handled_since(whole_s)) or left:
            self.stuck = left
            if time.monotonic() > whole_s + seconds:
                break
            time.sleep(0.2)
        for load in self._loads.values():
            load.end()
        return self.world.verdict(seconds, overlap_s_max=OVERLAP_S_MAX)

    def told(self) -> str:
        """What the product says."""
        return self.world.told()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hosts.close()


def carry_out(world: World3, plan: Plan, done: Counter[str], end_s: float) -> None:
    """Do the plan's steps until the time is over, and count them."""
    for fault in plan:
        if time.monotonic() > end_s:
            return
        began_s = time.monotonic()
        try:
            told = _do(world, fault)
        except (Unanswered, ProcessLookupError, TimeoutError) as error:
            told = f"not done: {type(error).__name__}"
        done[told] += 1
        world.whole()
        took_s = time.monotonic() - began_s
        print(f"hosts: {told} ({fault.for_s:.1f} s, whole after {took_s:.1f} s)", flush=True)
        time.sleep(fault.pause_s)


def _do(world: World3, fault: Fault) -> str:
    what, _, which = fault.what.partition(" ")
    if what == "cut":
        return _cut(world, fault, "both" if which == "both" else "in" if which == "in" else "out")
    if what == "power":
        # Not the head, with which all of Ray goes.
        index = 1 + fault.number % (COUNT - 1)
        if world.durability != "always":  # its last bytes are lost: another host must have them
            world.world.until_in_sync(IN_SYNC_S)
        world.hosts.power_off(index, silent=fault.number & 1 == 0)
        time.sleep(fault.for_s)
        return "power off and on"
    if what == "lose":
        return _lose(world, fault)
    every = sorted(world.world.actors().items())
    found = [place for name, place in every if name.startswith(which)]
    if not found:
        return f"no {which} to {what}"
    index, pid = found[fault.number % len(found)]
    if what == "kill":
        world.hosts[index].kill(pid)
        return f"{which} killed"
    world.hosts[index].freeze([pid])
    time.sleep(fault.for_s)
    world.hosts[index].thaw([pid])
    return f"{which} frozen"


def _lose(world: World3, fault: Fault) -> str:
    """A host is lost with its disk, and comes back with an empty one: all others have all, but for
    the registry, which is a file here."""
    world.world.until_in_sync(IN_SYNC_S)
    spared = {HEAD, world.world.homes()["coordinator"]}
    every = [host.index for host in world.hosts if host.index not in spared]
    lost = every[fault.number % len(every)]
    world.hosts.power_off(lost, silent=fault.number & 1 == 0)
    time.sleep(fault.for_s)
    world.hosts.power_on(lost, empty_disk=True)
    return "host lost with its disk"


def _cut(world: World3, fault: Fault, way: Way) -> str:
    index = 1 + fault.number % (COUNT - 1)
    world.hosts.cut(index, way)
    time.sleep(fault.for_s)
    world.hosts.heal()
    # What Ray took for dead meanwhile ends itself when it hears of it.
    time.sleep(2)
    return f"link cut {way}"
