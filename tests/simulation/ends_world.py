"""A small world of known ends: logs that grow, pings that tell of it, a registry that keeps it.

`KeptEnds` decides as it ships, in one coordinator after the other; here pings and the registry's
writes are carried, late or not at all. `Ends.live` judges what the registry holds: a coordinator
that finds logs lost goes on above that.
"""

from __future__ import annotations

import random
from functools import partial

from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.topology.kept_ends import FAR_OFFSETS, KEEP_EVERY_MS, KNOWN_ENDS, KeptEnds
from tests.simulation.simulator.scenario import Scenario
from tests.simulation.simulator.world import Process, World

RUN_MS = 120_000
PING_MS = 500
LOOK_MS = 1_000
PUT_MS = (5, 60, 400)
# A ping may come after a younger one.
PING_TAKES_MS = (1, 80, 700)
GROW_MS = 150
GROWS = (0, 1, 40, 3_000, 60_000)
DRIFT = 0.05
# From when it is in a log until it is kept: a ping, a look, a write.
CARRIED_MS = int((PING_MS + 2 * LOOK_MS) * (1 + DRIFT)) + 2 * max(PUT_MS) + max(PING_TAKES_MS)
PARTITIONS = 3

KINDS = ("end", "mute", "away", "back", "back", "back", "queue", "remove", "still", "still", "grow")

Logs = dict[str, dict[PartitionId, Offset]]


class Keeper(Process):
    """A coordinator, as far as it keeps ends."""

    role = "coordinator"

    def __init__(self, ends: Ends) -> None:
        super().__init__(ends.world, "coordinator")
        self._world_ends = ends
        self.heard = KeptEnds()
        self.heard.read(ends.document)
        self.after(1, self._ping)
        self.after(LOOK_MS, self._look)

    def _ping(self) -> None:
        told = {name: dict(found) for name, found in self._world_ends.logs.items()}
        if not self._world_ends.mute:
            self.after(self._world_ends.dice.choice(PING_TAKES_MS), partial(self._heard, told))
        self.after(PING_MS, self._ping)

    def _heard(self, told: Logs) -> None:
        before = {name: self.heard.of(name) for name in told}
        self.heard.heard(told)
        for name, ends in before.items():
            found = self.heard.of(name)
            if any(found[partition] < end for partition, end in ends.items()):
                self._world_ends.broken.append(f"{self.world.now_ms}: {name} is back at {found}")

    def _look(self) -> None:
        self.heard.only(set(self._world_ends.logs))
        if not self.heard.is_due(self.monotonic_ms()):
            self.after(LOOK_MS, self._look)
            return
        text = self.heard.saving()
        self.world.at(self._world_ends.dice.choice(PUT_MS), partial(self._put, text))

    def _put(self, text: str) -> None:
        """What has left is done, but where a newer coordinator leads: the registry refuses it."""
        if self is not self._world_ends.coordinator:
            return
        was_away = self._world_ends.away
        if not was_away:
            self._world_ends.keep(text)
        self.run(partial(self._answered, was_away))

    def _answered(self, failed: bool) -> None:
        if not failed:
            self.heard.kept(self.monotonic_ms())
        self.after(LOOK_MS, self._look)


class Ends:
    """The logs of one seed, and the registry."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"ends {seed}")
        self.world = World(seed, Scenario())
        self.broken: list[str] = []
        self.document = ""
        # The registry is away; the buffers tell nothing.
        self.away = self.mute = False
        # Nobody sends anything.
        self.still = False
        self.kept = 0
        self.logs: Logs = {"q-1": dict.fromkeys(range(PARTITIONS), 0)}
        self._queues = 1
        # Since when a coordinator could keep what there is.
        self._well_ms = 0
        self._past: list[tuple[int, Logs]] = []
        self.coordinator = Keeper(self)
        self.world.at(GROW_MS, self._grow)
        self.world.at(3_000, self._befall)

    def keep(self, text: str) -> None:
        """The registry takes a document: it must not fall behind what it held."""
        before = KNOWN_ENDS.decode_text(self.document) if self.document else {}
        now = KNOWN_ENDS.decode_text(text)
        for queue, ends in before.items():
            found = now.get(queue, [])
            found = found + [0] * (len(ends) - len(found))
            if queue in self.logs and any(a > b for a, b in zip(ends, found, strict=False)):
                self.broken.append(f"{self.world.now_ms}: {queue} went back to {now.get(queue)}")
        for queue, ends in now.items():
            true = self.logs.get(queue, {})
            if true and any(end > true[p] for p, end in enumerate(ends)):
                self.broken.append(f"{self.world.now_ms}: {queue} is not yet at {ends}")
        self.document = text
        self.kept += 1

    def _grow(self) -> None:
        for found in self.logs.values():
            for partition in () if self.still else found:
                found[partition] += self.dice.choice(GROWS) if self.dice.random() < 0.3 else 0
        self._past.append((self.world.now_ms, {q: dict(f) for q, f in self.logs.items()}))
        self._judge()
        self.world.at(GROW_MS, self._grow)

    def _judge(self) -> None:
        """What has been in the logs for long is in the registry; what is far ahead, sooner."""
        now_ms = self.world.now_ms
        held = KNOWN_ENDS.decode_text(self.document) if self.document else {}
        for wait_ms, slack in ((CARRIED_MS + KEEP_EVERY_MS, 0), (CARRIED_MS, FAR_OFFSETS)):
            then_ms = now_ms - int(wait_ms * (1 + DRIFT))
            if then_ms < self._well_ms:
                continue
            past = (logs for at_ms, logs in reversed(self._past) if at_ms <= then_ms)
            then: Logs = next(past, {})
            for queue, found in then.items():
                known = held.get(queue, [])
                for partition, end in found.items():
                    has = known[partition] if partition < len(known) else 0
                    if queue in self.logs and end - has > slack:
                        self.broken.append(f"{now_ms}: {queue}/{partition} is kept as {has}: {end}")

    def _befall(self) -> None:
        kind = self.dice.choice(KINDS)
        if kind in ("end", "mute"):
            self.mute = kind == "mute"
            self.coordinator.crash()
            self.coordinator = Keeper(self)
            self._well_ms = self.world.now_ms
        elif kind == "away":
            self.away = True
        elif kind == "back":
            self.away = self.mute = False
        elif kind in ("still", "grow"):
            self.still = kind == "still"
        elif kind == "queue":
            self._queues += 1
            self.logs[f"q-{self._queues}"] = dict.fromkeys(range(PARTITIONS), 0)
        elif kind == "remove" and len(self.logs) > 1:
            del self.logs[self.dice.choice(sorted(self.logs))]
        if self.away or self.mute or kind in ("back", "queue"):
            self._well_ms = self.world.now_ms + (RUN_MS if self.away or self.mute else 0)
        self.world.at(self.dice.randint(500, 24_000), self._befall)

    def live(self) -> list[str]:
        """Let it run; what was promised of it and did not hold."""
        self.world.run_until(RUN_MS)
        held = KNOWN_ENDS.decode_text(self.document) if self.document else {}
        if len(held) > self._queues:
            self.broken.append(f"{sorted(held)} are kept")
        self.world.close()
        return self.broken
