"""Histories written by hand: the smallest ones that break each promise, and a good one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pxrs_ray.group.events import (
    Assignment,
    Commit,
    Configure,
    Event,
    Heartbeat,
    Join,
    PartitionProgress,
    Tick,
)
from pxrs_ray.model import (
    Grant,
    Member,
    MemberWrite,
    Outcome,
    PartitionRow,
    Progress,
    Record,
    Snapshot,
    Write,
    WriteKind,
)
from tests.simulation.history import (
    Acknowledged,
    Answered,
    Appended,
    Begun,
    Decided,
    Ended,
    Failed,
    Fetched,
    HistoryEvent,
    Led,
    Obeyed,
    Processed,
    Refused,
    RegistryAway,
    Stored,
    Told,
)

A, B = Member("A", 1), Member("B", 1)
FREE = PartitionRow(0)
OF_A = PartitionRow(0, "A", 1, 1, 0)
OF_B = PartitionRow(0, "B", 1, 3, 0)


def at(row: PartitionRow, checkpoint: int) -> PartitionRow:
    return PartitionRow(row.partition, row.owner, row.incarnation, row.epoch, checkpoint)


def appended(offset: int, **changed: object) -> Appended:
    made = Appended(1, 0, offset, b"k", f"m{offset}", "p", 0, offset)
    return replace(made, **changed)  # type: ignore[arg-type]


def fetched(member: str, epoch: int, base: int = 0, end: int = 1) -> Fetched:
    return Fetched(1, 0, epoch, member, 1, base, end)


def processed(member: str, epoch: int, offset: int) -> Processed:
    return Processed(1, 0, epoch, member, 1, offset, b"k", f"m{offset}")


def led(*members: Member, generation: int = 1, row: PartitionRow = FREE) -> Led:
    return Led(1, generation, Snapshot("g", generation, (row,), members, 0))


def write(
    kind: WriteKind, owner: str | None, epoch: int, checkpoint: int = 0, cause: str = ""
) -> Write:
    version = 0 if kind is WriteKind.COMMIT else 1
    incarnation = 0 if owner is None else 1
    return Write(kind, 0, owner, incarnation, epoch, checkpoint, version=version, cause=cause)


def stored(
    record: Record,
    before: PartitionRow | None,
    after: PartitionRow | None,
    outcome: Outcome = Outcome.APPLIED,
    generation: int = 1,
    repeat: bool = False,
) -> Stored:
    return Stored(1, generation, record, outcome, before, after, repeat)


CLAIM_A = stored(write(WriteKind.CLAIM, "A", 0), FREE, OF_A)
RELEASE_A = stored(write(WriteKind.RELEASE, "A", 1), OF_A, PartitionRow(0, epoch=2))
CLEAN_RELEASE_A = stored(
    write(WriteKind.RELEASE, "A", 1, cause="released by A#1"), OF_A, PartitionRow(0, epoch=2)
)
CLAIM_B = stored(write(WriteKind.CLAIM, "B", 2), PartitionRow(0, epoch=2), OF_B)
JOINED_A = stored(MemberWrite("joined", A, 100, 1), None, None)


def committed(member: str, row: PartitionRow, checkpoint: int) -> Stored:
    record = write(WriteKind.COMMIT, member, row.epoch, checkpoint)
    return stored(record, row, at(row, checkpoint))


def commit_to(offset: int) -> Commit:
    return Commit("A", 1, (PartitionProgress(0, 1, Progress(offset)),))


def answered(
    member: str, epoch: int, checkpoint: int, *, released: bool = False, generation: int = 1
) -> Answered:
    rows = (PartitionProgress(0, epoch, Progress(checkpoint)),)
    return Answered(1, generation, member, 1, rows, (Outcome.APPLIED,), released)


def told(member: str, grant: Grant, sequence: int = 1) -> Assignment:
    return Assignment(1, sequence, member, 1, (grant,))


def begun(member: str, epoch: int) -> Begun:
    return Begun(1, 0, epoch, member, 1, 0)


def decided(
    event: Event | None,
    *records: Record,
    now_ms: int = 0,
    members: tuple[Member, ...] = (A, B),
    before: dict[int, str] | None = None,
    target: dict[int, str] | None = None,
    revoking: Sequence[int] = (),
    at_ms: int = 1,
) -> Decided:
    return Decided(
        at_ms,
        now_ms,
        1,
        event,
        records,
        members,
        "sticky",
        {0: "A"} if before is None else before,
        {0: "A"} if target is None else target,
        frozenset(revoking),
        frozenset(),
        lease_ms=100,
        revoke_deadline_ms=50,
    )


HISTORIES: list[tuple[str, str, list[HistoryEvent]]] = [
    ("NothingFails", "an assertion", [Failed(1, "somewhere", "AssertionError")]),
    ("OneReader", "an old epoch is served", [fetched("B", 3), fetched("A", 1)]),
    ("OneReader", "an epoch with two readers", [fetched("A", 1), fetched("B", 1)]),
    (
        "LeaseBinds",
        "a message is begun a lease after its member was heard",
        [
            decided(Heartbeat("A", 1, (0, 0)), now_ms=5),
            decided(Tick(), now_ms=106),
            begun("A", 1),
        ],
    ),
    (
        "OneOwner",
        "a commit by another than claimed",
        [CLAIM_A, stored(write(WriteKind.COMMIT, "B", 1, 1), OF_A, at(OF_A, 1))],
    ),
    (
        "OneOwner",
        "a lower epoch after a higher one",
        [committed("B", OF_B, 1), committed("A", OF_A, 2)],
    ),
    ("OneOwner", "success told to another", [CLAIM_A, answered("B", 1, 0)]),
    (
        "CheckpointsHold",
        "a commit lowers it",
        [
            appended(0),
            appended(1),
            stored(write(WriteKind.COMMIT, "A", 1, 1), at(OF_A, 2), at(OF_A, 1)),
        ],
    ),
    ("CheckpointsHold", "past the log's end", [appended(0), committed("A", OF_A, 2)]),
    (
        "CheckpointsHold",
        "past what was processed",
        [appended(0), appended(1), processed("A", 1, 0), committed("A", OF_A, 2)],
    ),
    ("CheckpointsHold", "processed, never fetched", [fetched("A", 1), processed("A", 1, 1)]),
    ("CheckpointsHold", "the store forgot", [CLAIM_A, led(generation=2)]),
    (
        "ConsumerObeys",
        "an older assignment",
        [Obeyed(1, told("A", Grant(0, 1, 0), 2)), Obeyed(1, told("A", Grant(0, 1, 0), 1))],
    ),
    (
        "ConsumerObeys",
        "going on with what is lost",
        [Obeyed(1, told("A", Grant(0, 3, 0))), processed("A", 1, 0), processed("A", 1, 1)],
    ),
    (
        "StoreRefuses",
        "an old generation",
        [led(), led(generation=2), CLAIM_A],
    ),
    (
        "StoreRefuses",
        "a claim of what is owned",
        [led(), stored(write(WriteKind.CLAIM, "B", 1), OF_A, PartitionRow(0, "B", 1, 2))],
    ),
    (
        "StoreRefuses",
        "an old epoch",
        [led(), stored(write(WriteKind.COMMIT, "B", 1, 5), OF_B, at(OF_B, 5))],
    ),
    (
        "StoreRefuses",
        "taken and not done",
        [led(), stored(write(WriteKind.CLAIM, "A", 0), FREE, FREE)],
    ),
    (
        "StoreRefuses",
        "refused and done",
        [led(), stored(write(WriteKind.CLAIM, "A", 0), FREE, OF_A, Outcome.FENCED)],
    ),
    (
        "LiveRecordsTaken",
        "the store has to refuse",
        [led(), stored(write(WriteKind.CLAIM, "B", 1), OF_A, OF_A, Outcome.FENCED)],
    ),
    (
        "LiveRecordsTaken",
        "another checkpoint than promised",
        [led(), stored(write(WriteKind.CLAIM, "A", 0, 7), FREE, OF_A)],
    ),
    ("DurableReplies", "a commit", [led(), CLAIM_A, answered("A", 1, 1)]),
    ("DurableReplies", "a release", [led(), CLAIM_A, answered("A", 1, 0, released=True)]),
    (
        "DurableReplies",
        "a grant",
        [led(A), Told(1, told("A", Grant(0, 1, 0)))],
    ),
    (
        "DurableReplies",
        "a grant's checkpoint",
        [led(A), CLAIM_A, Told(1, told("A", Grant(0, 1, 4)))],
    ),
    ("DurableReplies", "a join", [led(), CLAIM_A, Told(1, told("A", Grant(0, 1, 0)))]),
    (
        "DurableReplies",
        "lost at a recovery",
        [led(), CLAIM_A, committed("A", OF_A, 2), answered("A", 1, 2), led(row=OF_A, generation=2)],
    ),
    ("AppendedOnce", "twice", [appended(0), appended(1, message="m0")]),
    ("AppendedOnce", "a gap", [appended(0), appended(2)]),
    ("AppendedOnce", "a sequence twice", [appended(0), appended(1, sequence=0)]),
    (
        "AppendedOnce",
        "an old producer",
        [appended(0, producer_epoch=1), appended(1, producer_epoch=0, sequence=0)],
    ),
    ("AppendedOnce", "a key in two places", [appended(0), appended(0, partition=1, message="x")]),
    ("AppendedOnce", "told another offset", [appended(0), Acknowledged(1, 0, 5, "m0")]),
    (
        "NothingLost",
        "one is left out",
        [processed("A", 1, 0), processed("A", 1, 2), Ended(1, (), {0: 3}, ())],
    ),
    (
        "CheckpointsCovered",
        "a checkpoint over a message that nobody processed",
        [
            processed("A", 1, 0),
            processed("A", 1, 2),
            stored(write(WriteKind.COMMIT, "A", 1, 3), OF_A, at(OF_A, 3)),
        ],
    ),
    ("InOrder", "a message skipped", [processed("A", 1, 0), processed("A", 1, 2)]),
    ("InOrder", "the same one twice in an epoch", [processed("A", 1, 0), processed("A", 1, 0)]),
    ("InOrder", "not from the granted checkpoint", [CLAIM_A, processed("A", 1, 1)]),
    ("InOrder", "a successor that skips", [processed("A", 1, 0), processed("B", 3, 2)]),
    (
        "KeysInOrder",
        "a later one of a key first",
        [appended(0), appended(1, key=b"x"), appended(2), processed("A", 1, 2)],
    ),
    ("KeysInOrder", "twice in an epoch", [processed("A", 1, 3), processed("A", 1, 3)]),
    (
        "DoneOnce",
        "a clean hand-over that left something",
        [CLAIM_A, processed("A", 1, 0), CLEAN_RELEASE_A],
    ),
    (
        "DoneOnce",
        "going on after handing back",
        [CLAIM_A, CLEAN_RELEASE_A, processed("A", 1, 0)],
    ),
    (
        "DoneOnce",
        "acknowledged and done again",
        [processed("A", 1, 0), answered("A", 1, 1), RELEASE_A, CLAIM_B, processed("B", 3, 0)],
    ),
    (
        "OnlyWithReason",
        "taken from a live owner",
        [led(A, B), decided(Configure(), write(WriteKind.RELEASE, "A", 1))],
    ),
    (
        "OnlyWithReason",
        "a lease that still runs",
        [
            led(A),
            decided(None),
            decided(Heartbeat("A", 1), now_ms=60),
            decided(Tick(), now_ms=40),
            decided(Tick(), write(WriteKind.RELEASE, "A", 1), now_ms=80),
        ],
    ),
    (
        "OnlyWithReason",
        "a restart takes",
        [led(A), decided(None, write(WriteKind.RELEASE, "A", 1))],
    ),
    (
        "OnlyWithReason",
        "a commit that nobody sent so",
        [
            led(A),
            decided(commit_to(5), write(WriteKind.COMMIT, "A", 3, 5)),
        ],
    ),
    (
        "OnlyWithReason",
        "asked back for nothing",
        [led(A, row=PartitionRow(0, "A", 1, 1)), decided(Tick(), revoking=[0])],
    ),
    (
        "OnlyWithReason",
        "claimed for another than the target",
        [led(A), decided(Join((B,)), write(WriteKind.CLAIM, "B", 0))],
    ),
    (
        "LeastMovement",
        "a move for nothing",
        [led(A, B), decided(Join((B,)), before={0: "A"}, target={0: "B"})],
    ),
    (
        "LeastMovement",
        "a share that is not given",
        [led(B), decided(Join((B,)), members=(B,), before={0: "A"}, target={0: "A"})],
    ),
    (
        "PromptDeadlines",
        "a deadline that nobody looks at",
        [decided(None), *(decided(Tick(), now_ms=ms, revoking=[0]) for ms in (10, 40, 70))],
    ),
    (
        "OutageMovesNobody",
        "a lease that ends in an outage",
        [
            led(A),
            RegistryAway(1, away=True),
            *(decided(Tick(), now_ms=ms, at_ms=ms) for ms in range(0, 500, 40)),
            decided(Tick(), write(WriteKind.RELEASE, "A", 1), now_ms=520, at_ms=520),
        ],
    ),
    ("RefusalsHold", "an owner is told it is gone", [led(), CLAIM_A, Refused(1, 1, "A", 1)]),
    ("ComesToRest", "something waits", [Ended(1, (), {}, (), ("a record waits",))]),
    ("ComesToRest", "a dead owner", [Ended(1, (OF_A,), {0: 0}, ())]),
    ("ComesToRest", "messages left", [Ended(1, (OF_A,), {0: 1}, (("A", 1),))]),
]

GOOD: list[HistoryEvent] = [
    led(),
    JOINED_A,
    appended(0),
    appended(1),
    Acknowledged(1, 0, 1, "m1"),
    decided(Join((A,)), write(WriteKind.CLAIM, "A", 0), members=(A,), before={}),
    CLAIM_A,
    Told(1, told("A", Grant(0, 1, 0))),
    Obeyed(1, told("A", Grant(0, 1, 0))),
    fetched("A", 1, 0, 2),
    begun("A", 1),
    processed("A", 1, 0),
    decided(commit_to(1), write(WriteKind.COMMIT, "A", 1, 1), members=(A,)),
    committed("A", OF_A, 1),
    answered("A", 1, 1),
    processed("A", 1, 1),
    committed("A", at(OF_A, 1), 2),
    Ended(1, (at(OF_A, 2),), {0: 2}, (("A", 1),)),
]
