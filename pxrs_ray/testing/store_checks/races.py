# ruff: noqa: D102 (a test's name says what it shows)
"""Several clients at once: one winner a claim, one coordinator a generation, no torn reads."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pxrs_ray.model import Generation, Outcome, Snapshot, Write, WriteKind
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.testing.store_checks.base import (
    APPLIED,
    FENCED,
    ContractBase,
    commit,
    expect,
    together,
)


class RaceChecks(ContractBase):
    """What must hold whatever the interleaving."""

    def test_sixteen_threads_claim_and_exactly_one_wins(self) -> None:
        """`race_threads` threads on four stores claim one partition, round after round."""
        self.lead(1)
        stores = [self.store, *[self.another_store() for _ in range(3)]]
        gate = threading.Barrier(self.race_threads)
        answers: list[list[Outcome]] = [[] for _ in range(self.race_threads)]
        versions_a_round = self.race_threads + 1

        def run(thread: int) -> None:
            store, owner = stores[thread % len(stores)], f"owner-{thread}"
            for turn in range(self.claim_race_rounds):
                version = 2 + turn * versions_a_round + thread
                gate.wait(self.wait_s_max)
                claim = Write(WriteKind.CLAIM, 0, owner, 1, 2 * turn, version=version)
                (outcome,) = store.write(self.group, self.generation, [claim])
                answers[thread].append(outcome)
                gate.wait(self.wait_s_max)
                if outcome is APPLIED:
                    last = 2 + turn * versions_a_round + self.race_threads
                    release = Write(WriteKind.RELEASE, 0, owner, 1, 2 * turn + 1, version=last)
                    store.write(self.group, self.generation, [release])

        with ThreadPoolExecutor(self.race_threads) as pool:
            list(pool.map(run, range(self.race_threads)))
        wanted = Counter({APPLIED: 1, FENCED: self.race_threads - 1})
        for turn, outcomes in enumerate(zip(*answers, strict=True)):
            expect(f"the outcomes of round {turn}", Counter(outcomes), wanted)
        expect("the epoch after it", self.row(0).epoch, 2 * self.claim_race_rounds)

    def test_racing_coordinators_take_different_generations(self) -> None:
        stores = [self.another_store() for _ in range(6)]
        led = together([partial(store.lead, self.group, 4, "racer") for store in stores])
        taken = [snapshot.generation for snapshot in led]
        expect("generations", sorted(taken), list(range(1, 7)))
        history = self.store.changes(self.group, 0)
        expect("the history of it", [change.epoch for change in history], list(range(1, 7)))

    def test_a_new_generation_fences_writes_under_way(self) -> None:
        """What `lead` returns is final: no write of an older generation lands after it."""
        self.lead(16)
        self.apply(*[self.claim(p) for p in range(16)])
        for turn in range(5):
            stop = threading.Event()
            stores = [self.another_store() for _ in range(2)]
            write = partial(self._commit_until_fenced, old=self.generation, stop=stop)
            with ThreadPoolExecutor(2) as pool:
                writers = [pool.submit(write, store) for store in stores]
                reached = self.snapshot().partitions[0].checkpoint + 3
                self.eventually(
                    "the old coordinator is writing",
                    lambda least=reached: self.snapshot().partitions[15].checkpoint >= least,  # type: ignore[misc]
                    True,
                )
                led = self.lead(16, self.another_store())
                for writer in writers:
                    writer.result(self.wait_s_max)
                stop.set()
            expect(f"the state that lead returned in turn {turn}", self.snapshot(), led)

    def _commit_until_fenced(
        self, store: RegistryStore, old: Generation, stop: threading.Event
    ) -> None:
        checkpoint = self.snapshot().partitions[0].checkpoint
        while not stop.is_set():
            checkpoint += 1
            records = [commit(partition, checkpoint) for partition in range(16)]
            if FENCED in store.write(self.group, old, records):
                return

    def test_a_read_is_one_moment(self) -> None:
        """A row, its epoch and its history entry are seen together or not at all."""
        self.lead(2)
        stop = threading.Event()

        def write() -> None:
            for epoch in range(0, 10_000, 2):
                if stop.is_set():
                    return
                self.apply(self.claim(0, epoch=epoch), self.release(0, epoch=epoch + 1))

        reader = self.another_store()
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            try:
                for _ in range(200):
                    found = reader.load(self.group)
                    assert found is not None
                    _check_whole(found)
            finally:
                stop.set()
            writer.result(self.wait_s_max)

    def test_threads_share_a_store(self) -> None:
        self.lead(16)
        self.apply(*[self.claim(p) for p in range(16)])

        def commits(partition: int) -> list[Outcome]:
            return [self.apply(commit(partition, offset))[0] for offset in range(1, 21)]

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(commits, range(16)))
        expect("every commit", answers, [[APPLIED] * 20] * 16)
        expect("checkpoints", [row.checkpoint for row in self.snapshot().partitions], [20] * 16)


def _check_whole(found: Snapshot) -> None:
    row = found.partitions[0]
    # Led at version 1; since then each ownership change raised the version and the epoch by one.
    if found.last_version - 1 not in (row.epoch, row.epoch + 1):
        raise AssertionError(f"torn read: version {found.last_version}, epoch {row.epoch}")
    expect("owned at odd epochs only", row.owner is not None, row.epoch % 2 == 1)
