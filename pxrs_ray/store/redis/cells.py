"""The form of rows, members and records as Redis strings; `scripts` compares them as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pxrs_ray.model import (
    Change,
    Record,
    Snapshot,
    Write,
    WriteKind,
)
from pxrs_ray.store import rules
from pxrs_ray.store.texts import change_text, own_text, partition_row


def cell(checkpoint: int, attempts: int = 0, detail: str = "") -> str:
    """How far a partition is."""
    return f"{checkpoint};{attempts};{detail}"


def record_words(record: Record) -> tuple[object, ...]:
    """The arguments of one record of the WRITE script."""
    if isinstance(record, Write):
        held = own_text(record.epoch, record.incarnation, record.owner)
        if record.kind is WriteKind.COMMIT:
            progress = cell(record.checkpoint, record.attempts, record.detail)
            return ("c", record.partition, held, record.checkpoint, progress)
        free, freed, progress = own_text(record.epoch), own_text(record.epoch_after), ""
        if record.kind is WriteKind.CLAIM:
            before, after = free, own_text(record.epoch_after, record.incarnation, record.owner)
        elif record.kind is WriteKind.RELEASE:
            before, after = held, freed
        else:
            before, after, progress = free, freed, cell(record.checkpoint)
        change = change_text(rules.change_of(record))
        return ("o", record.partition, before, after, progress, record.version, change)
    change, member = change_text(rules.change_of(record)), record.member
    if record.kind == "left":
        return ("l", member.member, member.incarnation, record.version, change)
    words = rules.member_attributes(member)
    # A key cannot expire in 0 ms; 1 is over before anybody can look.
    lease_ms = max(1, record.lease_ms)
    return ("j", member.member, member.incarnation, words, lease_ms, record.version, change)


def restore_words(
    snapshot: Snapshot, life: str, changes: Sequence[Change], documents: Mapping[str, str]
) -> list[object]:
    """The arguments of the RESTORE script."""
    state: dict[str, object] = {
        "n": len(snapshot.partitions),
        "gen": snapshot.generation,
        "ver": snapshot.last_version,
        "seq": 0,
        "id": life,
    }
    for row in snapshot.partitions:
        state[f"o{row.partition}"] = own_text(row.epoch, row.incarnation, row.owner)
        state[f"c{row.partition}"] = cell(row.checkpoint, row.attempts, row.detail)
    members = {
        member.member: f"{member.incarnation};{rules.member_attributes(member)}"
        for member in snapshot.members
    }
    history = {change.version: change_text(change) for change in changes}
    kept = {name: text for name, text in documents.items() if text}
    parts: tuple[Mapping[object, object], ...] = (state, members, history, kept)  # type: ignore[assignment]
    words: list[object] = [len(state), len(members), len(history)]
    for part in parts:
        for pair in part.items():
            words.extend(pair)
    return words


def pairs(flat: Sequence[str]) -> dict[str, str]:
    """A hash that a script returned, as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def snapshot_from(group: str, state: Mapping[str, str], members: Mapping[str, str]) -> Snapshot:
    """The snapshot that a group's `state` and `members` hashes tell."""
    rows = (
        partition_row(number, state[f"o{number}"], state[f"c{number}"])
        for number in range(int(state["n"]))
    )
    found = []
    for name in sorted(members):
        incarnation, _, words = members[name].partition(";")
        found.append(rules.member_from(name, int(incarnation), words))
    return Snapshot(group, int(state["gen"]), tuple(rows), tuple(found), int(state["ver"]))
