"""The keys of a group in etcd, and the form of their values. Numbers are padded: text order
counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Member, PartitionRow
from pxrs_ray.store.rules import member_attributes, member_from
from pxrs_ray.store.texts import partition_row


def padded(number: int) -> str:
    """A number whose text sorts as it does."""
    return f"{number:020d}"


@dataclass(frozen=True)
class GroupKeys:
    """Every key of the group whose keys begin with `base`."""

    base: str

    @property
    def head(self) -> str:
        """'generation;partitions'."""
        return f"{self.base}head"

    @property
    def version(self) -> str:
        """The last version, padded."""
        return f"{self.base}ver"

    def own(self, partition: int) -> str:
        """'epoch;incarnation;owner'; absent at epoch 0."""
        return f"{self.base}own/{partition:06d}"

    def cell(self, partition: int) -> str:
        """'checkpoint;attempts;detail', the checkpoint padded; there when `own` is."""
        return f"{self.base}ck/{partition:06d}"

    def member(self, member: str) -> str:
        """'incarnation;attributes', the incarnation padded."""
        return f"{self.base}m/{quote(member, safe='')}"

    def lease(self, member: str) -> str:
        """The incarnation, under the member's lease: gone when that ends."""
        return f"{self.base}l/{quote(member, safe='')}"

    def change(self, version: int) -> str:
        """A history entry as JSON."""
        return f"{self.base}h/{padded(version)}"

    def document(self, name: str) -> str:
        """A document, or where its pieces are."""
        return f"{self.base}d/{quote(name, safe='')}"

    def pieces(self, name: str, edition: str) -> str:
        """What the keys of a large document's pieces begin with."""
        return f"{self.base}x/{quote(name, safe='')}/{edition}/"


def cell_text(checkpoint: int, attempts: int = 0, detail: str = "") -> str:
    """How far a partition is."""
    return f"{padded(checkpoint)};{attempts};{detail}"


def member_text(member: Member) -> str:
    """A member without its id."""
    return f"{padded(member.incarnation)};{member_attributes(member)}"


def values_of(answer: Any) -> dict[str, str]:
    """The keys and values of one read of a transaction, by the last part of the key."""
    return {
        kv.key.decode().rsplit("/", 1)[1]: kv.value.decode() for kv in answer.response_range.kvs
    }


def value_of(answer: Any) -> str | None:
    """The value of a read of one key; None when it is absent."""
    kvs = answer.response_range.kvs
    return kvs[0].value.decode() if kvs else None


def revision_of(answer: Any) -> int:
    """When a key was last changed; 0 when it is absent."""
    kvs = answer.response_range.kvs
    return int(kvs[0].mod_revision) if kvs else 0


def rows_from(count: int, own: Mapping[str, str], cell: Mapping[str, str]) -> list[PartitionRow]:
    """Every row of a group with `count` partitions."""
    names = (f"{partition:06d}" for partition in range(count))
    return [
        partition_row(partition, own.get(name), cell.get(name))
        for partition, name in enumerate(names)
    ]


def members_from(found: Mapping[str, str]) -> Iterable[Member]:
    """Every member, sorted by id."""
    named = {unquote(name): value for name, value in found.items()}
    for name in sorted(named):
        incarnation, _, words = named[name].partition(";")
        yield member_from(name, int(incarnation), words)
