"""The tables of the SQL stores, their version, and the upgrade from older versions.

Rules of this file. `pxrs_registry` holds the schema's version and the registry's id. A newer
version is refused; an older one is brought up step by step, each step in `UPGRADES` under the
version it starts from. Names are at most 30 bytes and no database's reserved words.
"""

from __future__ import annotations

from pxrs_ray.errors import StoreSchemaError
from pxrs_ray.model import Write, WriteKind
from pxrs_ray.store.sql.dialect import Dialect, RowUpdate

SCHEMA_VERSION = 1
SETTINGS_TABLE = "pxrs_registry"
GROUP_TABLES = ("pxrs_partition", "pxrs_member", "pxrs_change", "pxrs_document", "pxrs_group")
NAME_CHARS = 300
"""A group's name with the store's prefix before it."""


def tables(dialect: Dialect) -> dict[str, str]:
    """The body of each table's CREATE."""
    name, member, number = dialect.text(NAME_CHARS), dialect.text(200), dialect.integer
    zero = f"{number} DEFAULT 0 NOT NULL"
    return {
        SETTINGS_TABLE: (
            f"setting_name {dialect.text(40)} NOT NULL, setting_value {dialect.text(200)}, "
            "CONSTRAINT pxrs_registry_pk PRIMARY KEY (setting_name)"
        ),
        "pxrs_group": (
            f"group_name {name} NOT NULL, generation {zero}, last_version {zero}, "
            f"partition_count {number} NOT NULL, holder {member}, "
            "CONSTRAINT pxrs_group_pk PRIMARY KEY (group_name)"
        ),
        "pxrs_partition": (
            f"group_name {name} NOT NULL, partition_id {number} NOT NULL, owner_id {member}, "
            f"incarnation {zero}, epoch {zero}, checkpoint_offset {zero}, attempts {zero}, "
            f"detail {dialect.text(2_000)}, generation {zero}, "
            "CONSTRAINT pxrs_partition_pk PRIMARY KEY (group_name, partition_id)"
        ),
        "pxrs_member": (
            f"group_name {name} NOT NULL, member_id {member} NOT NULL, incarnation {zero}, "
            f"attributes {dialect.text(1_000)}, lease_until {dialect.timestamp} NOT NULL, "
            "CONSTRAINT pxrs_member_pk PRIMARY KEY (group_name, member_id)"
        ),
        "pxrs_change": (
            f"group_name {name} NOT NULL, version {number} NOT NULL, kind {dialect.text(20)}, "
            f"partition_id {number} NOT NULL, owner_id {member}, incarnation {zero}, "
            f"epoch {zero}, checkpoint_offset {zero}, cause {dialect.text(1_000)}, at_ms {zero}, "
            "CONSTRAINT pxrs_change_pk PRIMARY KEY (group_name, version)"
        ),
        "pxrs_document": (
            f"group_name {name} NOT NULL, document_name {member} NOT NULL, "
            f"part {number} NOT NULL, content {dialect.text(dialect.document_chars)}, "
            "CONSTRAINT pxrs_document_pk PRIMARY KEY (group_name, document_name, part)"
        ),
    }


def upgrades(dialect: Dialect) -> dict[int, tuple[str, ...]]:
    """The statements that lead from each older version to the next."""
    return {
        # Version 0 kept owner, checkpoint and epoch only: no attempts and no detail beside them.
        0: (
            f"ALTER TABLE pxrs_partition ADD attempts {dialect.integer} DEFAULT 0 NOT NULL",
            f"ALTER TABLE pxrs_partition ADD detail {dialect.text(2_000)}",
        ),
    }


def upgrade_steps(dialect: Dialect, stored: int) -> list[str]:
    """Every statement between the `stored` version and this one.

    Raises StoreSchemaError when there is no way.
    """
    if stored > SCHEMA_VERSION:
        raise StoreSchemaError(
            f"the registry's schema has version {stored}, this code knows up to {SCHEMA_VERSION}: "
            "use the newer version of pxrs-ray that made it"
        )
    known = upgrades(dialect)
    steps: list[str] = []
    for version in range(stored, SCHEMA_VERSION):
        if version not in known:
            raise StoreSchemaError(
                f"the registry's schema has version {stored}, and there is no way from {version} on"
            )
        steps.extend(known[version])
    return steps


_KEY = "group_name = :g AND partition_id = :p AND generation = :gen"
_OWNED = f"{_KEY} AND owner_id = :o AND incarnation = :i AND epoch = :e"
_FREE = f"{_KEY} AND owner_id IS NULL AND epoch = :e"
_P, _O, _I, _E, _C = (
    ("p", "bigint"),
    ("o", "text"),
    ("i", "bigint"),
    ("e", "bigint"),
    ("c", "bigint"),
)

WRITES = {
    WriteKind.CLAIM: RowUpdate(
        "pxrs_partition",
        "owner_id = :o, incarnation = :i, epoch = epoch + 1",
        _FREE,
        (_P, _O, _I, _E),
        ("g", "gen"),
    ),
    WriteKind.RELEASE: RowUpdate(
        "pxrs_partition",
        "owner_id = NULL, incarnation = 0, epoch = epoch + 1",
        _OWNED,
        (_P, _O, _I, _E),
        ("g", "gen"),
    ),
    WriteKind.COMMIT: RowUpdate(
        "pxrs_partition",
        "checkpoint_offset = :c, attempts = :a, detail = :d",
        f"{_OWNED} AND checkpoint_offset <= :c",
        (_P, _O, _I, _E, _C, ("a", "bigint"), ("d", "text")),
        ("g", "gen"),
    ),
    WriteKind.RESET: RowUpdate(
        "pxrs_partition",
        "checkpoint_offset = :c, attempts = 0, detail = NULL, epoch = :t",
        _FREE,
        (_P, _E, _C, ("t", "bigint")),
        ("g", "gen"),
    ),
}
"""The conditional update of each kind of write: the whole of what keeps a partition safe."""


def write_values(write: Write) -> dict[str, object]:
    """The binds of one write that differ from row to row."""
    kind = write.kind
    if kind is WriteKind.RESET:
        return {
            "p": write.partition,
            "e": write.epoch,
            "c": write.checkpoint,
            "t": write.epoch_after,
        }
    values: dict[str, object] = {
        "p": write.partition,
        "o": write.owner,
        "i": write.incarnation,
        "e": write.epoch,
    }
    if kind is WriteKind.COMMIT:
        values.update(c=write.checkpoint, a=write.attempts, d=write.detail)
    return values


def renewal(dialect: Dialect) -> RowUpdate:
    """The update that extends a lease that is not over."""
    return RowUpdate(
        "pxrs_member",
        f"lease_until = {dialect.later(':s')}",
        f"group_name = :g AND member_id = :m AND incarnation = :i AND lease_until > {dialect.now}",
        (("m", "text"), ("i", "bigint")),
        ("g", "s"),
    )
