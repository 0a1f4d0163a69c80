# ruff: noqa: D102 (a test's name says what it shows)
"""The sixteen store tests that the design's documents list, under the names of what they say."""

from __future__ import annotations

from functools import partial

from pxrs_ray.model import Member, PartitionRow
from pxrs_ray.testing.store_checks.base import (
    APPLIED,
    FENCED,
    ContractBase,
    commit,
    expect,
    numbers,
    together,
)


class DocumentedChecks(ContractBase):
    """Initialisation, registration, claims, release, fenced checkpoints, zombies, hand-over."""

    def test_initialization_creates_slots_with_defaults(self) -> None:
        snapshot = self.lead(8)
        expect("a new group's rows", snapshot.partitions, tuple(map(PartitionRow, range(8))))
        expect("a new group's members", snapshot.members, ())

    def test_initialization_is_idempotent(self) -> None:
        self.lead(8)
        expect("a claim", self.apply(self.claim(0)), [APPLIED])
        rows = self.snapshot().partitions
        expect("rows after a second initialization", self.lead(8).partitions, rows)

    def test_register_consumers(self) -> None:
        self.lead()
        a, b = Member("A", 1), Member("B", 1)
        expect("joins", self.apply(self.join(b), self.join(a)), [APPLIED, APPLIED])
        expect("members, sorted by id", self.snapshot().members, (a, b))

    def test_deregister_consumer(self) -> None:
        self.lead()
        a, b = Member("A", 1), Member("B", 1)
        self.apply(self.join(a), self.join(b))
        expect("a leave", self.apply(self.leave(a)), [APPLIED])
        expect("members after a leave", self.snapshot().members, (b,))

    def test_claim_sets_owner_and_bumps_epoch(self) -> None:
        self.lead()
        expect("a claim", self.apply(self.claim(3, "A", incarnation=7)), [APPLIED])
        expect("the claimed row", self.row(3), PartitionRow(3, "A", 7, 1))

    def test_two_threads_race_to_claim_and_one_wins(self) -> None:
        self.lead()
        claims = [self.claim(0, "A"), self.claim(0, "B")]
        answers = together([partial(self.apply, record) for record in claims])
        expect("two claims", sorted(outcome for (outcome,) in answers), [APPLIED, FENCED])

    def test_claim_with_wrong_epoch_is_rejected(self) -> None:
        self.lead()
        expect("claims of epoch 0", self.apply(self.claim(0, epoch=1)), [FENCED])
        expect("the row", self.row(0), PartitionRow(0))

    def test_claim_of_an_owned_partition_is_rejected(self) -> None:
        self.lead()
        self.apply(self.claim(0, "A"))
        expect("a second claim", self.apply(self.claim(0, "B", epoch=1)), [FENCED])
        expect("the owner", self.row(0).owner, "A")

    def test_release_bumps_epoch_and_clears_owner(self) -> None:
        self.lead()
        self.apply(self.claim(0), commit(0, 5))
        expect("a release", self.apply(self.release(0)), [APPLIED])
        expect("the released row", self.row(0), PartitionRow(0, None, 0, 2, 5))

    def test_release_by_non_owner_is_rejected(self) -> None:
        self.lead()
        self.apply(self.claim(0, "A"))
        expect("a stranger's release", self.apply(self.release(0, "B")), [FENCED])
        expect("the row", self.row(0), PartitionRow(0, "A", 1, 1))

    def test_checkpoint_with_current_epoch_is_stored(self) -> None:
        self.lead()
        self.apply(self.claim(0))
        expect("a commit", self.apply(commit(0, 42)), [APPLIED])
        expect("the checkpoint", self.row(0).checkpoint, 42)

    def test_checkpoint_with_stale_epoch_is_rejected(self) -> None:
        self.lead()
        self.apply(self.claim(0), self.release(0), self.claim(0, epoch=2), commit(0, 10, epoch=3))
        expect("a commit of epoch 1", self.apply(commit(0, 99, epoch=1)), [FENCED])
        expect("the checkpoint", self.row(0).checkpoint, 10)

    def test_checkpoint_by_non_owner_is_rejected(self) -> None:
        self.lead()
        self.apply(self.claim(0, "A"))
        expect("a stranger's commit", self.apply(commit(0, 9, "B")), [FENCED])
        expect("the checkpoint", self.row(0).checkpoint, 0)

    def test_deregistered_owner_is_a_zombie(self) -> None:
        self.lead()
        a = Member("A", 1)
        self.apply(self.join(a), self.claim(0), self.claim(5))
        expect("expired partitions of a live owner", self.store.expired(self.group), ())
        self.apply(self.leave(a))
        expect("expired partitions", numbers(self.store.expired(self.group)), [0, 5])

    def test_stale_heartbeat_is_a_zombie(self) -> None:
        self.lead()
        silent, live = Member("A", 1), Member("B", 1)
        self.apply(self.join(silent, self.lease_short_ms), self.join(live))
        self.apply(self.claim(0), self.claim(1, "B"), self.claim(2))
        self.eventually(
            "the silent owner's partitions expire, no other",
            lambda: numbers(self.store.expired(self.group)),
            [0, 2],
        )

    def test_checkpoint_survives_owner_change(self) -> None:
        self.lead()
        self.apply(self.claim(0, "A"), commit(0, 10), self.release(0, "A"))
        expect("the next claim", self.apply(self.claim(0, "B", epoch=2)), [APPLIED])
        expect("the row", self.row(0), PartitionRow(0, "B", 1, 3, 10))
