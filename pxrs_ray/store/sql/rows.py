"""What the SQL stores read, and the history and documents that they insert.

Rules of this file. A snapshot is one statement, so that every database reads it at one moment
without a transaction. Oracle keeps '' as NULL: texts that may be empty are read with `or ''`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pxrs_ray.model import Change, Member, PartitionRow, Snapshot
from pxrs_ray.store.rules import member_from
from pxrs_ray.store.sql.dialect import Dialect

ROW_COLUMNS = "partition_id, owner_id, incarnation, epoch, checkpoint_offset, attempts, detail"

SNAPSHOT = """
SELECT 0 AS part, generation AS a, last_version AS b, partition_count AS c, 0 AS d, 0 AS e,
holder AS name, holder AS words FROM pxrs_group WHERE group_name = :g
UNION ALL SELECT 1, partition_id, incarnation, epoch, checkpoint_offset, attempts, owner_id, detail
FROM pxrs_partition WHERE group_name = :g
UNION ALL SELECT 2, incarnation, 0, 0, 0, 0, member_id, attributes
FROM pxrs_member WHERE group_name = :g
""".strip().replace("\n", " ")

ROWS_BETWEEN = (
    f"SELECT {ROW_COLUMNS}, generation FROM pxrs_partition WHERE group_name = :g "
    "AND partition_id BETWEEN :low AND :high"
)

CHANGES = (
    "SELECT version, kind, partition_id, owner_id, incarnation, epoch, checkpoint_offset, cause, "
    "at_ms FROM pxrs_change WHERE group_name = :g AND version > :v ORDER BY version"
)

CHANGE_COLUMNS = {
    "group_name": ":g",
    "version": ":v",
    "kind": ":k",
    "partition_id": ":p",
    "owner_id": ":o",
    "incarnation": ":i",
    "epoch": ":e",
    "checkpoint_offset": ":c",
    "cause": ":w",
    "at_ms": ":t",
}


def expired_sql(dialect: Dialect) -> str:
    """The owned rows whose owner's incarnation has no lease that goes on."""
    return (
        f"SELECT {ROW_COLUMNS} FROM pxrs_partition WHERE group_name = :g "
        "AND owner_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pxrs_member "
        "WHERE pxrs_member.group_name = pxrs_partition.group_name "
        "AND pxrs_member.member_id = pxrs_partition.owner_id "
        "AND pxrs_member.incarnation = pxrs_partition.incarnation "
        f"AND pxrs_member.lease_until > {dialect.now}) ORDER BY partition_id"
    )


def partition_row(row: Any) -> PartitionRow:
    """A partition from the columns `ROW_COLUMNS`."""
    partition, owner, incarnation, epoch, checkpoint, attempts, detail = row[:7]
    return PartitionRow(
        int(partition),
        owner,
        int(incarnation),
        int(epoch),
        int(checkpoint),
        int(attempts),
        detail or "",
    )


def snapshot_from(group: str, rows: Iterable[Any]) -> Snapshot | None:
    """The snapshot that the rows of `SNAPSHOT` tell; None when the group is not there."""
    head: Any = None
    partitions: list[PartitionRow] = []
    members: list[Member] = []
    for row in rows:
        part, a, b, c, d, e, name, words = row
        if part == 0:
            head = row
        elif part == 1:
            partitions.append(partition_row((a, name, b, c, d, e, words)))
        else:
            members.append(member_from(name, int(a), words))
    if head is None:
        return None
    partitions.sort(key=lambda row: row.partition)
    members.sort(key=lambda member: member.member)
    return Snapshot(group, int(head[1]), tuple(partitions), tuple(members), int(head[2]))


def change_from(row: Any) -> Change:
    """A history entry from the columns of `CHANGES`."""
    version, kind, partition, owner, incarnation, epoch, checkpoint, cause, at_ms = row
    return Change(
        int(version),
        kind,
        int(partition),
        owner,
        int(incarnation),
        int(epoch),
        int(checkpoint),
        cause or "",
        int(at_ms),
    )


def change_values(group: str, change: Change) -> dict[str, object]:
    """The binds of `CHANGE_COLUMNS`."""
    return {
        "g": group,
        "v": change.version,
        "k": change.kind,
        "p": change.partition,
        "o": change.owner,
        "i": change.incarnation,
        "e": change.epoch,
        "c": change.checkpoint,
        "w": change.cause,
        "t": change.at_ms,
    }
