"""The table of what replicated logs survive, in docs/simulation.md, is what playing it shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.replicas.group import ReplicaGroup, drawn

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"
SEEDS = 2
BEGINS_MS, WATCHED_MS, SETTLED_MS = 1_000, 3_500, 30_000
GOES_ON, WAITS, OPERATOR, LOST = "goes on", "waits", "operator", "lost"


class Played(ReplicaGroup):
    """A slot under load, to which one thing happens."""

    def __init__(self, seed: int, replicas: int, min_isr: int, *, synced_only: bool) -> None:
        quiet = {"network": 1e-9}
        rules = drawn(
            seed, replicas=replicas, min_isr=min_isr, synced_only=synced_only, weights=quiet
        )
        super().__init__(seed, rules)
        for spare in self.disks.keys() - self.processes.keys():
            del self.disks[spare]  # no other host takes the place of one that is lost
        self.heal()
        for producer in self.producers:
            producer.sending = True
        self.world.run_until(BEGINS_MS)
        self.back: list[Callable[[], None]] = []

    def a_process_is_killed(self) -> None:
        """Whoever leads; it comes back later."""
        process = self.processes[self.registry.placement.leader]
        self.end(process)
        self.back.append(partial(self.start, process.disk))

    def a_host_loses_power(self) -> None:
        """Whoever leads; it comes back later."""
        self.a_process_is_killed()
        self.disks[self.registry.placement.leader].files.cut_power()

    def a_host_is_gone_for_good(self) -> None:
        """Whoever leads."""
        name = self.registry.placement.leader
        self.end(self.processes[name])
        del self.disks[name]

    def two_hosts_are_gone_for_good(self) -> None:
        """One after the other; of two, that is all."""
        self.a_host_is_gone_for_good()
        self.world.run_until(self.world.now_ms + 1_000)
        self.a_host_is_gone_for_good()

    def every_host_loses_power(self) -> None:
        """At once, and comes back a moment later."""
        for process in list(self.processes.values()):
            self.end(process)
            process.disk.files.cut_power()
        self.world.run_until(self.world.now_ms + 300)
        for disk in list(self.disks.values()):
            self.start(disk)

    def outcome(self) -> str:
        """What became of it: while what went is away, and after it has come back."""
        self.world.run_until(self.world.now_ms + WATCHED_MS)
        goes_on = self.waited_ms() < 1_000
        for come_back in self.back:
            come_back()
        end_ms = self.world.now_ms + SETTLED_MS if self.back else self.world.now_ms
        for producer in self.producers:
            producer.sending = False
        while self.world.now_ms < end_ms and any(one.pending for one in self.producers):
            self.world.run_until(self.world.now_ms + 100)
        assert not self.broken
        leads = self.processes[self.registry.placement.leader]
        if not leads.alive:
            return LOST
        if leads.replica.leader is None:
            return OPERATOR
        for key in self.keys:
            kept = {entry.offset: entry.value for entry in leads.entries(key)}
            for (of, offset), wanted in self._acknowledged.items():
                assert of != key or kept.get(offset) == wanted.value, "acknowledged, and lost"
        if self.back:
            assert not any(one.pending for one in self.producers), "it goes on when all is back"
        return GOES_ON if goes_on else WAITS


EVENTS = {
    "a process is killed": Played.a_process_is_killed,
    "a host loses power": Played.a_host_loses_power,
    "a host is gone for good": Played.a_host_is_gone_for_good,
    "two hosts are gone for good": Played.two_hosts_are_gone_for_good,
    "every host loses power": Played.every_host_loses_power,
}


def rows() -> list[tuple[int, int, str, dict[str, str]]]:
    """The table, as it stands on the page."""
    found = []
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    at = next(n for n, line in enumerate(lines) if line.startswith("| replicas "))
    heads = [cell.strip() for cell in lines[at].strip("|").split("|")]
    for line in lines[at + 2 :]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not re.fullmatch(r"\d", cells[0]):
            break
        told = dict(zip(heads[3:], cells[3:], strict=True))
        found.append((int(cells[0]), int(cells[1]), cells[2].strip("`"), told))
    return found


def test_the_table_names_every_event() -> None:
    assert len(rows()) == 8
    assert all(list(told) == list(EVENTS) for *_, told in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_what_the_page_says_is_what_happens(row: tuple[int, int, str, dict[str, str]]) -> None:
    replicas, min_isr, durability, told = row
    found = {}
    for event, happens in EVENTS.items():
        outcomes = set()
        for seed in range(SEEDS):
            played = Played(seed, replicas, min_isr, synced_only=durability == "always")
            happens(played)
            outcomes.add(played.outcome())
            played.world.close()
        found[event] = " or ".join(sorted(outcomes))
    assert found == told
