# ruff: noqa: D102 (a test's name says what it shows)
"""Groups, generations, history, documents, moving and removing: the registry around the rows."""

from __future__ import annotations

from pxrs_ray.errors import AlreadyExists, StoreError, UsageError
from pxrs_ray.model import Change, Member, PartitionRow, Record, Snapshot
from pxrs_ray.replication.placement import ReplicaSeen, elect, first_placement
from pxrs_ray.replication.placements import DOCUMENT as PLACES
from pxrs_ray.replication.placements import PLACEMENTS, Placements, placements_from
from pxrs_ray.testing.store_checks.base import (
    APPLIED,
    FENCED,
    ContractBase,
    commit,
    expect,
    expect_raises,
    numbers,
    together,
)

ODD_NAMES = (
    "plain",
    "a/b/../c",
    "per%cent%20 and +plus",
    "q'uo\"te`s",
    "semi;colon:and,comma|bar",
    "{hash}tag}{",
    "back\\slash\nnewline\ttab",
    "*?[a-z]",
    "$(shell) ${x} :bind %(x)s ? ",
    "Grüße 漢字 🎈",
    "None",
    "NULL",
    " leading and trailing ",
    "0",
    "UPPER",
    "upper",
)
LONG_NAME = "ü漢🎈x" * 50


class RegistryChecks(ContractBase):
    """Everything of the contract that is not one partition's row or one member's lease."""

    def test_create_is_idempotent_and_safe_to_race(self) -> None:
        stores = [self.another_store() for _ in range(8)]
        ids = set(together([store.create for store in stores]))
        expect("one registry has one id", ids, {self.store.create()})

    def test_leading_takes_the_next_generation(self) -> None:
        first = self.lead(4)
        expect(
            "a new group", (first.group, first.generation, first.last_version), (self.group, 1, 1)
        )
        self.apply(self.join(Member("A", 1)), self.claim(0), commit(0, 3))
        second = self.lead(4, self.another_store())
        wanted = Snapshot(
            self.group,
            2,
            (PartitionRow(0, "A", 1, 1, 3), *map(PartitionRow, range(1, 4))),
            (Member("A", 1),),
            4,
        )
        expect("what the next coordinator reads", second, wanted)
        expect("what anybody reads", self.snapshot(), wanted)

    def test_a_group_keeps_its_number_of_partitions(self) -> None:
        before = self.lead(4)
        for wrong in (3, 5, 0, -1):
            expect_raises(
                f"leading with {wrong} partitions",
                UsageError,
                lambda n=wrong: self.lead(n),  # type: ignore[misc]
            )
        expect("the state", self.snapshot(), before)

    def test_groups_are_apart(self) -> None:
        names = [self.own_group(f"{self.group}{odd}") for odd in ODD_NAMES]
        for number, name in enumerate(names):
            snapshot = self.store.lead(name, 2, "contract")
            claim, done = self.claim(1, f"owner-{number}"), commit(1, number, f"owner-{number}")
            answers = self.store.write(name, snapshot.generation, [claim, done])
            expect(f"writes to {name!r}", answers, [APPLIED, APPLIED])
        expect("their names", set(names) - set(self.store.groups()), set())
        expect("sorted", list(self.store.groups()), sorted(self.store.groups()))
        for number, name in enumerate(names):
            found = self.store.load(name)
            assert found is not None
            expect("the name", found.group, name)
            wanted = PartitionRow(1, f"owner-{number}", 1, 1, number)
            expect(f"the row of {name!r}", found.partitions[1], wanted)
        self.store.remove_group(names[0])
        expect("the others stay", set(names) - set(self.store.groups()), {names[0]})

    def test_names_of_any_characters_come_back_as_they_were(self) -> None:
        self.group = self.own_group(LONG_NAME)
        self.lead(len(ODD_NAMES) + 1)
        for number, name in enumerate((*ODD_NAMES, LONG_NAME)):
            member = Member(name, 1, labels=(name,) if name != LONG_NAME else ())
            join, claim = self.join(member), self.claim(number, name)
            answers = self.apply(join, claim, commit(number, 1, name))
            expect(f"writes of {name!r}", answers, [APPLIED] * 3)
            expect(f"the member {name!r}", member in self.snapshot().members, True)
            expect(f"the owner {name!r}", self.row(number).owner, name)
            change = self.store.changes(self.group, claim.version - 1)[0]
            expect("its history", (change.owner, change.cause), (name, f"{name} joined"))
            renewal = self.store.renew(self.group, self.generation, [(name, 1)], 60_000)
            expect(f"the renewal of {name!r}", renewal, [APPLIED])
            put = self.store.put_document(self.group, self.generation, name, f"text of {name}")
            expect(f"the document {name!r}", put, APPLIED)
        expect("nobody is expired", self.store.expired(self.group), ())
        wanted = {name: f"text of {name}" for name in (*ODD_NAMES, LONG_NAME)}
        expect("the documents", dict(self.store.documents(self.group)), wanted)
        expect("members, sorted", [m.member for m in self.snapshot().members], sorted(wanted))

    def test_no_owner_is_none_and_an_empty_text_is_empty(self) -> None:
        self.lead(2)
        self.apply(self.claim(0), commit(0, 1, detail=""), self.release(0))
        row = self.row(0)
        expect("no owner, no detail", (row.owner, row.detail), (None, ""))
        claim, release = self.store.changes(self.group, 1)
        expect("a cause left empty", (claim.cause, release.cause), ("A joined", ""))

    def test_4096_partitions(self) -> None:
        count = 4_096
        expect("the rows made", numbers(self.lead(count).partitions), list(range(count)))
        self.apply(self.join(Member("A", 1)))
        claims = [self.claim(p, "A" if p % 2 else "B") for p in range(count)]
        expect("claims", self.apply(*claims), [APPLIED] * count)
        commits = [commit(p, p, "A" if p % 2 else "B") for p in range(count)]
        expect("commits", self.apply(*commits), [APPLIED] * count)
        rows = self.snapshot().partitions
        expect("checkpoints", [row.checkpoint for row in rows], list(range(count)))
        expect("B's are expired", numbers(self.store.expired(self.group)), list(range(0, count, 2)))
        expect("a second lead", self.lead(count).partitions, rows)

    def test_history_has_every_change_once_and_in_order(self) -> None:
        self.lead()
        a = Member("A", 1)
        records: list[Record] = [
            self.join(a),
            self.claim(0),
            commit(0, 4),
            self.release(0),
            self.claim(0, "B", epoch=1),
            self.reset(0, 2, 1),
            self.leave(a),
        ]
        self.apply(*records)
        self.lead()
        found = self.store.changes(self.group, 0)
        told = [(c.kind, c.partition, c.owner, c.incarnation, c.epoch) for c in found]
        wanted = [
            ("led", -1, "contract", 0, 1),
            ("joined", -1, "A", 1, 0),
            ("claim", 0, "A", 1, 1),
            ("release", 0, "A", 1, 2),
            ("reset", 0, None, 0, 3),
            ("left", -1, "A", 1, 0),
            ("led", -1, "contract", 0, 2),
        ]
        expect("the history, without the commit and the refused claim", told, wanted)
        versions = [change.version for change in found]
        expect("rising versions", versions, sorted(set(versions)))
        wanted_claim = Change(3, "claim", 0, "A", 1, 1, 0, "A joined", 1_700_000_000_000)
        expect("an entry as a whole", found[2], wanted_claim)
        expect("the last version", self.snapshot().last_version, versions[-1])

    def test_history_is_read_in_pages(self) -> None:
        self.lead()
        for epoch in range(0, 20, 2):
            self.apply(self.claim(0, epoch=epoch), self.release(0, epoch=epoch + 1))
        whole = self.store.changes(self.group, 0)
        expect("its length", len(whole), 21)
        expect("a page", self.store.changes(self.group, whole[4].version, 3), whole[5:8])
        expect("behind the end", self.store.changes(self.group, whole[-1].version), ())

    def test_trimmed_history_goes_on_counting(self) -> None:
        self.lead()
        for epoch in range(0, 10, 2):
            self.apply(self.claim(0, epoch=epoch), self.release(0, epoch=epoch + 1))
        whole = self.store.changes(self.group, 0)
        self.store.trim_changes(self.group, self.generation, 4)
        expect("the newest four", self.store.changes(self.group, 0), whole[-4:])
        self.store.trim_changes(self.group, self.generation, 10)
        expect("a wider trim", self.store.changes(self.group, 0), whole[-4:])
        self.store.trim_changes(self.group, self.generation, 0)
        expect("nothing left", self.store.changes(self.group, 0), ())
        expect("the last version", self.snapshot().last_version, whole[-1].version)
        self.lead()
        versions = [change.version for change in self.store.changes(self.group, 0)]
        expect("the next version", versions, [whole[-1].version + 1])

    def test_documents(self) -> None:
        self.lead()
        put = self.store.put_document
        expect("none at first", dict(self.store.documents(self.group)), {})
        expect("a put", put(self.group, self.generation, "config/current", '{"a": 1}'), APPLIED)
        expect(
            "the same again",
            put(self.group, self.generation, "config/current", '{"a": 1}'),
            APPLIED,
        )
        expect("another", put(self.group, self.generation, "other", "ä\n' \" %s"), APPLIED)
        expect("a new text", put(self.group, self.generation, "config/current", "2"), APPLIED)
        wanted = {"config/current": "2", "other": "ä\n' \" %s"}
        expect("the documents", dict(self.store.documents(self.group)), wanted)
        expect("a removal", put(self.group, self.generation, "other", ""), APPLIED)
        expect("one of nothing", put(self.group, self.generation, "nothing", ""), APPLIED)
        expect(
            "what stays", dict(self.another_store().documents(self.group)), {"config/current": "2"}
        )

    def test_placements_stand_under_the_generation_that_leads(self) -> None:
        self.lead()
        seen = {"disk a": ReplicaSeen(1, "boot"), "disk b": ReplicaSeen(1, "boot")}
        first = Placements(slots={0: first_placement(("disk a", "disk b"), seen)})
        put, former = self.store.put_document, self.generation
        text = PLACEMENTS.encode_text(first)
        expect("the first", put(self.group, former, PLACES, text), APPLIED)
        self.lead()
        led = elect(first.slots[0], {"disk b": seen["disk b"]}, synced_only=False)
        assert led is not None
        text = PLACEMENTS.encode_text(Placements(slots={0: led}))
        expect("an election", put(self.group, self.generation, PLACES, text), APPLIED)
        text = PLACEMENTS.encode_text(first)
        expect("one of who led before", put(self.group, former, PLACES, text), FENCED)
        stands = placements_from(self.another_store().documents(self.group)[PLACES])
        expect("who leads", (stands.slots[0].leader, stands.slots[0].epoch), ("disk b", 2))

    def test_large_documents(self) -> None:
        self.lead()
        largest = "漢🎈x" * 333_333 + "!"
        texts = {"largest": largest, "ascii": "y" * 999_999, "short": "z"}
        for name, text in texts.items():
            answer = self.store.put_document(self.group, self.generation, name, text)
            expect(f"document {name}", answer, APPLIED)
        expect("what is read", dict(self.store.documents(self.group)) == texts, True)
        self.store.put_document(self.group, self.generation, "largest", "small now")
        expect("a shorter text", self.store.documents(self.group)["largest"], "small now")
        expect_raises(
            "a document over the limit",
            UsageError,
            lambda: self.store.put_document(self.group, self.generation, "d", "x" * 1_000_001),
        )

    def test_a_group_is_restored_as_it_was(self) -> None:
        self.lead(4)
        a = Member("A", 2, 1.5, 500, ("x",))
        self.apply(self.join(a), self.claim(0, incarnation=2), self.claim(1), self.release(1))
        self.apply(commit(0, 12, incarnation=2, attempts=2, detail="d"))
        self.store.put_document(self.group, self.generation, "config", "text")
        snapshot, changes = self.snapshot(), self.store.changes(self.group, 0)
        documents = self.store.documents(self.group)
        self.store.remove_group(self.group)
        other = self.another_store()
        other.restore(snapshot, changes, documents)
        expect("the snapshot", self.snapshot(), snapshot)
        expect("the history", self.store.changes(self.group, 0), changes)
        expect("the documents", dict(self.store.documents(self.group)), dict(documents))
        expect("a restored member does not run", numbers(self.store.expired(self.group)), [0])
        expect_raises(
            "a second restore", AlreadyExists, lambda: other.restore(snapshot, changes, documents)
        )
        expect("the next generation", self.lead(4).generation, snapshot.generation + 1)
        expect("it goes on", self.apply(commit(0, 13, incarnation=2)), [APPLIED])

    def test_a_removed_group_is_gone(self) -> None:
        self.lead()
        self.apply(self.join(Member("A", 1)), self.claim(0))
        self.store.put_document(self.group, self.generation, "d", "x" * 100_000)
        self.store.remove_group(self.group)
        self.store.remove_group(self.group)
        expect("its name", self.group in self.store.groups(), False)
        expect("its state", self.store.load(self.group), None)
        expect("its history", self.store.changes(self.group, 0), ())
        expect("its documents", dict(self.store.documents(self.group)), {})
        expect("a write to it", self.apply(commit(0, 1)), [FENCED])
        expect("a group anew", self.lead(3).partitions, tuple(map(PartitionRow, range(3))))

    def test_only_the_newest_generation_removes_a_group(self) -> None:
        old = self.lead().generation
        newest = self.lead(store=self.another_store()).generation
        before = self.snapshot()
        expect("an old one", self.store.remove_group(self.group, old), FENCED)
        expect("what is stored", self.snapshot(), before)
        expect("its name", self.group in self.store.groups(), True)
        expect("the newest", self.store.remove_group(self.group, newest), APPLIED)
        expect("its state", self.store.load(self.group), None)
        expect("its name", self.group in self.store.groups(), False)
        expect("once more", self.store.remove_group(self.group, newest), APPLIED)

    def test_describe_and_close(self) -> None:
        store = self.another_store()
        info = store.describe()
        expect("the backend is named", bool(info.backend and info.url), True)
        store.close()
        store.close()
        expect_raises("a call after close", StoreError, lambda: store.load(self.group))
