"""The rules that all stores share: compare-and-set as pure functions, limits, JSON forms.

Rules of this file. No I/O and no clock. A backend that compares in its own server still uses these
functions to word the outcome of a write that its server refused, and to number its history, so that
six backends cannot drift apart.

`change_of` fixes two things that `Change` leaves open: its `epoch` is the epoch AFTER the change
(what the owner now holds), and its `checkpoint` is the one that the record carries.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence

from pxrs_ray.codec import Codec, register
from pxrs_ray.errors import StoreCorrupted, StoreSchemaError, UsageError
from pxrs_ray.model import (
    PARTITIONS_MAX,
    Change,
    Generation,
    Member,
    Outcome,
    PartitionRow,
    Record,
    Snapshot,
    Write,
    WriteKind,
)
from pxrs_ray.store.registry import (
    DETAIL_CHARS_MAX,
    DOCUMENT_CHARS_MAX,
    GROUP_CHARS_MAX,
    MEMBER_CHARS_MAX,
)

# Of a member, beside its id and incarnation: weight, grace in ms, labels.
Attributes = tuple[float, int, tuple[str, ...]]

CAUSE_CHARS_MAX = 1_000
ATTRIBUTES_CHARS_MAX = 1_000
DOCUMENT_NAME_CHARS_MAX = 200
# What an 8-byte integer of a database holds; attempts are far fewer.
NUMBER_MAX = (1 << 63) - 1
ATTEMPTS_MAX = (1 << 31) - 1


def next_row(row: PartitionRow, write: Write) -> PartitionRow | None:
    """The row that `write` makes of `row`, or None when its condition does not hold."""
    if row.epoch != write.epoch:
        return None
    if write.kind is WriteKind.COMMIT:
        if not _owned_by_writer(row, write) or row.checkpoint > write.checkpoint:
            return None
    elif write.kind is WriteKind.RELEASE:
        if not _owned_by_writer(row, write):
            return None
    elif row.owner is not None:
        return None
    return write.applied_to(row)


def refused_outcome(row: PartitionRow | None, write: Write) -> Outcome:
    """Word the outcome of a `write` that did not change `row` (None: no such partition).

    A row that already is what the write would have made means that an earlier try of the very
    same write arrived and its answer was lost: that is success.
    """
    if row is None:
        return Outcome.FENCED
    if write.kind is WriteKind.COMMIT:
        if not _owned_by_writer(row, write) or row.epoch != write.epoch:
            return Outcome.FENCED
        return Outcome.BEHIND if row.checkpoint > write.checkpoint else Outcome.APPLIED
    if row.epoch != write.epoch_after:
        return Outcome.FENCED
    if write.kind is WriteKind.CLAIM:
        made = _owned_by_writer(row, write)
    elif write.kind is WriteKind.RELEASE:
        made = row.owner is None
    else:
        made = row == PartitionRow(row.partition, None, 0, row.epoch, write.checkpoint)
    return Outcome.APPLIED if made else Outcome.FENCED


def _owned_by_writer(row: PartitionRow, write: Write) -> bool:
    return (
        row.owner is not None and row.owner == write.owner and row.incarnation == write.incarnation
    )


def change_of(record: Record) -> Change:
    """The history entry of a numbered record."""
    cause = record.cause[:CAUSE_CHARS_MAX]
    if isinstance(record, Write):
        return Change(
            record.version,
            record.kind.value,
            record.partition,
            record.owner,
            record.incarnation,
            record.epoch_after,
            record.checkpoint,
            cause,
            record.at_ms,
        )
    member = record.member
    return Change(
        record.version,
        record.kind,
        -1,
        member.member,
        member.incarnation,
        0,
        0,
        cause,
        record.at_ms,
    )


def led_change(version: int, holder: str, generation: Generation, at_ms: int) -> Change:
    """The history entry of a coordinator that took over."""
    return Change(version, "led", -1, holder, 0, generation, 0, "took the lead", at_ms)


def waves(records: Sequence[Record]) -> list[list[int]]:
    """Split `records` into lists of indices in which no partition and no member comes twice.

    Several records for one partition take effect in order when the waves are applied in order;
    within a wave a backend may apply all at once.
    """
    found: list[list[int]] = []
    seen: dict[Hashable, int] = {}
    for index, record in enumerate(records):
        key: Hashable = record.partition if isinstance(record, Write) else record.member.member
        wave = seen.get(key, 0)
        seen[key] = wave + 1
        if wave == len(found):
            found.append([])
        found[wave].append(index)
    return found


def check_generation(stored: Generation, sent: Generation, group: str) -> bool:
    """True when `sent` is the newest; False when it is old.

    Raises StoreCorrupted when the store knows less than it once gave out: it has lost writes.
    """
    if stored < sent:
        raise StoreCorrupted(
            f"group {group!r}: the store's generation went back from {sent} to {stored}: it lost "
            "accepted writes (a restart without persistence, a restored backup or a failover); "
            "stop the topology and check the registry before going on"
        )
    return stored == sent


def check_registry_id(known: str | None, found: str | None) -> None:
    """Raise StoreCorrupted when the registry is not the one that this store knows."""
    if known is not None and found != known:
        raise StoreCorrupted(
            f"the registry {known} is gone{f', {found} is in its place' if found else ''}: it was "
            "lost or replaced (a restart without persistence, a removed file); stop the topology "
            "and check the registry before going on"
        )


def check_version(where: str, stored: int, known: int) -> None:
    """Refuse a registry whose layout is newer than this code."""
    if stored > known:
        raise StoreSchemaError(
            f"the registry at {where} has version {stored}, this code knows up to {known}: "
            "use the newer version of pxrs-ray that made it"
        )


def check_group(group: str) -> None:
    """Refuse a group name that no backend could keep."""
    _check_name("group name", group, GROUP_CHARS_MAX)


def check_lead(group: str, partitions: int, holder: str) -> None:
    """Refuse arguments of `lead` that make no sense."""
    check_group(group)
    _check_name("holder", holder, MEMBER_CHARS_MAX)
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise UsageError(
            f"group {group!r}: partitions is {partitions}, allowed: 1 to {PARTITIONS_MAX}"
        )


def check_document(name: str, text: str) -> None:
    """Refuse a document that is over a limit."""
    _check_name("document name", name, DOCUMENT_NAME_CHARS_MAX)
    if len(text) > DOCUMENT_CHARS_MAX:
        raise UsageError(
            f"document {name!r} has {len(text)} characters, allowed: {DOCUMENT_CHARS_MAX}"
        )
    _check_keepable(f"document {name!r}", text)


def check_restore(snapshot: Snapshot, documents: Mapping[str, str]) -> None:
    """Refuse a group to be restored that is over a limit."""
    check_group(snapshot.group)
    for name, text in documents.items():
        check_document(name, text)


def check_records(records: Sequence[Record]) -> None:
    """Refuse a batch with a record over a limit, before anything of it is written.

    A coordinator checks what it is asked with these same rules before it applies anything (see
    `pxrs_ray.group.event_checks`): here is the second line.
    """
    for record in records:
        if isinstance(record, Write):
            if record.detail:
                check_detail(record.partition, record.detail)
            if not (record.checkpoint <= NUMBER_MAX and record.attempts <= ATTEMPTS_MAX):
                raise UsageError(
                    f"partition {record.partition}: checkpoint {record.checkpoint} or attempts "
                    f"{record.attempts} is more than a registry can keep"
                )
            if record.version:
                _check_writer(record.owner, record.cause)
        else:
            check_member(record.member)
            _check_writer(None, record.cause)


def check_detail(partition: int, detail: str) -> None:
    """Refuse what an owner wants kept beside its checkpoint, and no backend could keep."""
    if not (len(detail) <= DETAIL_CHARS_MAX and detail.isascii() and detail.isprintable()):
        raise UsageError(
            f"partition {partition}: detail has {len(detail)} characters, allowed: at most "
            f"{DETAIL_CHARS_MAX}, printable ASCII only"
        )


def check_member(member: Member) -> None:
    """Refuse a member that no backend could keep."""
    _check_name("member id", member.member, MEMBER_CHARS_MAX)
    for label in member.labels:
        _check_keepable(f"a label of member {member.member!r}", label)
    member_attributes(member)


def _check_writer(member: str | None, cause: str) -> None:
    if member is not None:
        _check_name("member id", member, MEMBER_CHARS_MAX)
    _check_keepable("a cause", cause)


def _check_name(what: str, name: str, chars_max: int) -> None:
    if not 1 <= len(name) <= chars_max:
        raise UsageError(
            f"{what} {name[:50]!r} has {len(name)} characters, allowed: 1 to {chars_max}"
        )
    _check_keepable(f"{what} {name!r}", name)


def _check_keepable(what: str, text: str) -> None:
    if "\0" in text:
        raise UsageError(f"{what} contains a NUL character, which no database keeps")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{what} contains half of a character (a lone surrogate), which is no text"
        ) from None


def _encode(attributes: Attributes) -> bytes:
    weight, grace_ms, labels = attributes
    return json.dumps([weight, grace_ms, *labels], ensure_ascii=False).encode()


def _decode(data: bytes) -> Attributes:
    try:
        weight, grace_ms, *labels = json.loads(data)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not what is kept of a member: {error}") from None
    return weight, grace_ms, tuple(labels)


ATTRIBUTES = register(Codec("store: member attributes", Attributes, _encode, _decode))


def member_attributes(member: Member) -> str:
    """What a store keeps of a member in addition to id and incarnation, as one JSON text."""
    text = ATTRIBUTES.encode_text((member.weight, member.grace_ms, member.labels))
    if len(text) > ATTRIBUTES_CHARS_MAX:
        raise UsageError(
            f"member {member.member!r}: its labels take {len(text)} characters as JSON, "
            f"allowed: {ATTRIBUTES_CHARS_MAX}"
        )
    return text


def member_from(member: str, incarnation: int, attributes: str) -> Member:
    """The member that `member_attributes` described."""
    weight, grace_ms, labels = ATTRIBUTES.decode_text(attributes)
    return Member(member, incarnation, weight, grace_ms, labels)
