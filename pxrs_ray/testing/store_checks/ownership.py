# ruff: noqa: D102 (a test's name says what it shows)
"""Conditional writes: what is refused, what is repeated without harm, batches and their order."""

from __future__ import annotations

from dataclasses import replace

from pxrs_ray.errors import UsageError
from pxrs_ray.model import Member, Outcome, PartitionRow, Record
from pxrs_ray.testing.store_checks.base import (
    APPLIED,
    BEHIND,
    FENCED,
    ContractBase,
    commit,
    expect,
    expect_raises,
)

BIG = 2**53 + 1
"""A number that a backend which counts in floats would round."""


class OwnershipChecks(ContractBase):
    """The compare-and-set rules of `Write`."""

    def test_the_fencing_example(self) -> None:
        """Epoch 5, released at 6, claimed at 7: the stale write of 5 is refused."""
        self.lead()
        self.apply(self.claim(0), self.release(0), self.claim(0, epoch=2), self.release(0, epoch=3))
        self.apply(self.claim(0, "A", 4), commit(0, 10, "A", 5))
        expect("the release", self.apply(self.release(0, "A", 5)), [APPLIED])
        expect("the claim by B", self.apply(self.claim(0, "B", 6)), [APPLIED])
        expect("the stale write of A", self.apply(commit(0, 11, "A", 5)), [FENCED])
        expect("what B finds", self.row(0), PartitionRow(0, "B", 1, 7, 10))

    def test_an_old_incarnation_is_refused(self) -> None:
        self.lead()
        self.apply(self.claim(0, "A", incarnation=2))
        stale = [commit(0, 5), self.release(0), self.claim(0, epoch=1)]
        expect("commit, release and claim of incarnation 1", self.apply(*stale), [FENCED] * 3)
        expect("the row", self.row(0), PartitionRow(0, "A", 2, 1))

    def test_a_free_partition_takes_no_commit_and_no_release(self) -> None:
        self.lead()
        answers = self.apply(commit(0, 5, epoch=0), self.release(0, epoch=0))
        expect("commit and release without an owner", answers, [FENCED, FENCED])

    def test_an_old_generation_is_refused_for_every_mutator(self) -> None:
        old = self.lead().generation
        a, b = Member("A", 1), Member("B", 1)
        self.apply(self.join(a), self.claim(0), commit(0, 5))
        expect("the next generation", self.lead(store=self.another_store()).generation, old + 1)
        before = self.snapshot()
        records: list[Record] = [
            commit(0, 9),
            self.release(0),
            self.claim(1),
            self.reset(2, 0, 4),
            self.join(b),
            self.leave(a),
        ]
        answers = self.store.write(self.group, old, records)
        expect("an old generation's writes", answers, [FENCED] * len(records))
        expect("its commits alone", self.store.write(self.group, old, [commit(0, 9)]), [FENCED])
        expect("its renewal", self.store.renew(self.group, old, [("A", 1)], 60_000), [FENCED])
        expect("its document", self.store.put_document(self.group, old, "d", "x"), FENCED)
        self.store.trim_changes(self.group, old, 0)
        expect("what is stored", self.snapshot(), before)
        expect("documents", dict(self.store.documents(self.group)), {})
        expect("history survives its trim", len(self.store.changes(self.group, 0)) > 2, True)

    def test_checkpoints_never_go_down(self) -> None:
        self.lead()
        self.apply(self.claim(0), commit(0, 100))
        answers = self.apply(commit(0, 99), commit(0, 9), commit(0, 100), commit(0, 101))
        expect("lower, lower, same, higher", answers, [BEHIND, BEHIND, APPLIED, APPLIED])
        self.apply(self.release(0))
        self.apply(self.claim(0, "B", 2))
        expect("a new owner's lower commit", self.apply(commit(0, 50, "B", 3)), [BEHIND])
        expect("the checkpoint", self.row(0).checkpoint, 101)

    def test_large_numbers_are_exact(self) -> None:
        self.lead()
        self.apply(self.claim(0, incarnation=BIG))
        answers = [
            self.apply(commit(0, offset, incarnation=BIG))[0] for offset in (BIG, BIG - 1, BIG + 1)
        ]
        expect("offsets beyond 2**53", answers, [APPLIED, BEHIND, APPLIED])
        expect("the row", self.row(0), PartitionRow(0, "A", BIG, 1, BIG + 1))

    def test_attempts_and_detail_survive_a_hand_over(self) -> None:
        self.lead()
        detail = "".join(map(chr, range(32, 127))) + "x" * (2_000 - 95)
        self.apply(self.claim(0), commit(0, 7, attempts=3, detail=detail))
        self.apply(self.release(0), self.claim(0, "B", 2))
        expect("the row", self.row(0), PartitionRow(0, "B", 1, 3, 7, 3, detail))
        self.apply(commit(0, 8, "B", 3))
        expect("the row after progress", self.row(0), PartitionRow(0, "B", 1, 3, 8, 0, ""))

    def test_a_detail_over_its_limits_is_refused_before_anything_is_written(self) -> None:
        self.lead()
        self.apply(self.claim(0))
        for detail in ("x" * 2_001, "line\nbreak", "ä"):
            records = [commit(0, 5), commit(0, 6, detail=detail)]
            expect_raises("a bad detail", UsageError, lambda bad=records: self.apply(*bad))  # type: ignore[misc]
        expect("the checkpoint", self.row(0).checkpoint, 0)

    def test_reset_lowers_a_checkpoint_of_a_free_partition_only(self) -> None:
        self.lead()
        self.apply(self.claim(0), commit(0, 50, attempts=2, detail="x"))
        expect("a reset of an owned one", self.apply(self.reset(0, 1, 5)), [FENCED])
        self.apply(self.release(0))
        expect("a reset of a stale epoch", self.apply(self.reset(0, 1, 5)), [FENCED])
        expect("a reset", self.apply(self.reset(0, 2, 5)), [APPLIED])
        expect("the row", self.row(0), PartitionRow(0, None, 0, 3, 5))

    def test_a_reset_may_leave_epochs_out(self) -> None:
        """Epochs that a lost registry gave out are never given out again."""
        self.lead()
        far = self.reset(0, 0, 5, epoch_to=BIG)
        expect("a reset far up", self.apply(far), [APPLIED])
        expect("the row", self.row(0), PartitionRow(0, None, 0, BIG, 5))
        expect("it again", self.apply(far), [APPLIED])
        change = self.store.changes(self.group, far.version - 1)[0]
        expect("its history", (change.kind, change.epoch), ("reset", BIG))
        low = self.reset(1, 0, 7, epoch_to=1)
        expect(
            "a reset never lowers an epoch", self.apply(low, self.reset(1, 1, 8, 1)), [APPLIED] * 2
        )
        expect("the row of it", self.row(1), PartitionRow(1, None, 0, 2, 8))
        answers = self.apply(self.claim(0, epoch=1), self.claim(0, epoch=BIG))
        expect("claims of a passed over epoch, and of the right one", answers, [FENCED, APPLIED])

    def test_each_write_repeated_is_applied_once(self) -> None:
        self.lead()
        steps: list[Record] = [
            self.join(Member("A", 1)),
            self.claim(0),
            commit(0, 5, attempts=1, detail="d"),
            self.release(0),
            self.reset(0, 2, 3),
            self.leave(Member("A", 1)),
        ]
        for step in steps:
            expect(f"{step.kind} at first", self.apply(step), [APPLIED])
            after, history = self.snapshot(), self.store.changes(self.group, 0)
            expect(f"{step.kind} again", self.apply(step), [APPLIED])
            expect(f"{step.kind} twice in a batch", self.apply(step, step), [APPLIED] * 2)
            expect(f"the state after {step.kind} again", self.snapshot(), after)
            expect(f"history after {step.kind} again", self.store.changes(self.group, 0), history)

    def test_a_repeat_is_no_loophole(self) -> None:
        """Only the exact result of a write counts as its repetition."""
        self.lead()
        self.apply(self.claim(0, "A"), self.claim(1, "A"))
        answers = self.apply(self.claim(0, "B"), self.claim(0, "A", incarnation=2))
        expect("others' claims of epoch 0", answers, [FENCED, FENCED])
        self.apply(self.release(1), self.claim(1, "A", 2))
        expect("a release of two epochs ago", self.apply(self.release(1)), [FENCED])
        self.apply(self.reset(2, 0, 5))
        expect("a reset to another place", self.apply(self.reset(2, 0, 6)), [FENCED])

    def test_records_of_one_partition_take_effect_in_order(self) -> None:
        self.lead()
        answers = self.apply(
            self.claim(0),
            commit(0, 5),
            commit(0, 4),
            commit(0, 9),
            self.release(0),
            commit(0, 10),
            self.reset(0, 2, 1),
            self.claim(0, "B", 3),
            commit(0, 2, "B", 4),
        )
        wanted = [APPLIED, APPLIED, BEHIND, APPLIED, APPLIED, FENCED, APPLIED, APPLIED, APPLIED]
        expect("outcomes in order", answers, wanted)
        expect("the row", self.row(0), PartitionRow(0, "B", 1, 4, 2))
        kinds = [change.kind for change in self.store.changes(self.group, 1)]
        expect("the history", kinds, ["claim", "release", "reset", "claim"])

    def test_members_and_partitions_share_a_batch(self) -> None:
        self.lead()
        old, new = Member("A", 1), Member("A", 2)
        answers = self.apply(
            self.join(new), self.join(old), self.claim(0, incarnation=2), self.leave(old)
        )
        expect("outcomes in order", answers, [APPLIED, FENCED, APPLIED, FENCED])
        expect("members", self.snapshot().members, (new,))

    def test_a_batch_of_256_commits_is_answered_one_by_one(self) -> None:
        self.lead(256)
        self.apply(*[self.claim(p, "A" if p % 3 else "B") for p in range(256)])
        self.apply(*[commit(p, 100) for p in range(0, 256, 5)])
        batch = [commit(p, 50 + p % 100) for p in range(256)]
        answers = self.apply(*batch)
        expect("outcomes", answers, [_wanted(p, 50 + p % 100) for p in range(256)])
        stored = [row.checkpoint for row in self.snapshot().partitions]
        expect("checkpoints", stored, [_stored(p, 50 + p % 100) for p in range(256)])

    def test_what_does_not_exist_is_fenced(self) -> None:
        self.lead(4)
        answers = self.apply(commit(4, 1), self.claim(99), self.claim(0), commit(1_000, 1))
        expect("writes to no partition", answers, [FENCED, FENCED, APPLIED, FENCED])
        nowhere = self.new_group()
        expect("a write", self.store.write(nowhere, 1, [commit(0, 1)]), [FENCED])
        expect("a claim", self.store.write(nowhere, 1, [self.claim(0)]), [FENCED])
        expect("a renewal", self.store.renew(nowhere, 1, [("A", 1)], 1_000), [FENCED])
        expect("a document", self.store.put_document(nowhere, 1, "d", "x"), FENCED)
        self.store.trim_changes(nowhere, 1, 0)
        expect("expired", self.store.expired(nowhere), ())
        expect("changes", self.store.changes(nowhere, 0), ())
        expect("documents", dict(self.store.documents(nowhere)), {})
        expect("a load", self.store.load(nowhere), None)

    def test_an_empty_batch_is_nothing(self) -> None:
        before = self.lead()
        expect("no records", self.apply(), [])
        expect("no members", self.store.renew(self.group, self.generation, [], 1_000), [])
        expect("the state", self.snapshot(), before)

    def test_a_commit_carries_no_history(self) -> None:
        self.lead()
        self.apply(self.claim(0))
        before = self.snapshot()
        self.apply(commit(0, 3))
        row = replace(before.partitions[0], checkpoint=3)
        wanted = replace(before, partitions=(row, *before.partitions[1:]))
        expect("all that a commit changed", self.snapshot(), wanted)


def _wanted(partition: int, checkpoint: int) -> Outcome:
    if partition % 3 == 0:
        return FENCED
    return BEHIND if partition % 5 == 0 and checkpoint < 100 else APPLIED


def _stored(partition: int, checkpoint: int) -> int:
    before = 100 if partition % 5 == 0 and partition % 3 else 0
    return max(before, checkpoint) if partition % 3 else 0
