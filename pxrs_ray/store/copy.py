"""Copies a stopped topology's registry from one store to another, and verifies the copy.

Rules of this file. Nothing is written to the source. A group that changes while it is copied, or
whose owners are alive, is refused: stop the topology first. What cannot be read back from the
target exactly as it was is removed there again and raised as `StoreCorrupted`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pxrs_ray.errors import NotFound, StoreCorrupted, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Change
from pxrs_ray.store.registry import RegistryStore

PAGE = 1_000


@dataclass(frozen=True, slots=True)
class CopiedGroup:
    """What was copied and read back of one group."""

    group: str
    generation: int
    partitions: int
    members: int
    changes: int
    documents: int


def copy_groups(
    source: RegistryStore, target: RegistryStore, groups: Sequence[str] | None = None
) -> list[CopiedGroup]:
    """Copy `groups` (None: all of them) to `target`, which must not have them yet.

    Raises NotFound for a group that is not there, UsageError for one that is in use,
    AlreadyExists for one that the target has, StoreCorrupted when what was read back differs.
    """
    there = source.groups()
    wanted = there if groups is None else tuple(groups)
    if missing := sorted(set(wanted) - set(there)):
        raise NotFound(f"no group {missing[0]!r} in {source.describe().url}; it has {there}")
    target.create()
    return [_copy_group(source, target, group) for group in wanted]


def all_changes(store: RegistryStore, group: str) -> tuple[Change, ...]:
    """The whole kept history of a group."""
    found: list[Change] = []
    while page := store.changes(group, found[-1].version if found else 0, PAGE):
        found += page
    return tuple(found)


def _copy_group(source: RegistryStore, target: RegistryStore, group: str) -> CopiedGroup:
    snapshot = source.load(group)
    assert snapshot is not None, "it was named a moment ago"
    expired = {row.partition for row in source.expired(group)}
    live = [row for row in snapshot.partitions if row.owner and row.partition not in expired]
    if live:
        raise UsageError(
            f"group {group!r} is in use: {live[0].owner!r} owns partition {live[0].partition} and "
            "is alive; stop the topology, or wait for its leases to end"
        )
    changes, documents = all_changes(source, group), dict(source.documents(group))
    if source.load(group) != snapshot:
        raise UsageError(f"group {group!r} changed while it was read: stop the topology first")
    target.restore(snapshot, changes, documents)
    back = (target.load(group), all_changes(target, group), dict(target.documents(group)))
    if back != (snapshot, changes, documents):
        target.remove_group(group)
        raise StoreCorrupted(
            f"group {group!r} did not come back from {target.describe().url} as it was written; "
            "it was removed there again"
        )
    return CopiedGroup(
        group,
        snapshot.generation,
        len(snapshot.partitions),
        len(snapshot.members),
        len(changes),
        len(documents),
    )
