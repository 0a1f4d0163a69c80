"""Rows and history as texts, for the key-value stores; a fence compares such a text whole."""

from __future__ import annotations

import dataclasses
import json

from pxrs_ray.codec import Codec, register
from pxrs_ray.model import Change, PartitionRow


def own_text(epoch: int, incarnation: int = 0, owner: str | None = None) -> str:
    """Who owns a partition, since which epoch."""
    return f"{epoch};{incarnation};{owner or ''}"


def partition_row(partition: int, own: str | None, cell: str | None) -> PartitionRow:
    """The row of an `own_text` and a 'checkpoint;attempts;detail'; without them as it was made."""
    if own is None or cell is None:
        return PartitionRow(partition)
    epoch, incarnation, owner = own.split(";", 2)
    checkpoint, attempts, detail = cell.split(";", 2)
    return PartitionRow(
        partition,
        owner or None,
        int(incarnation),
        int(epoch),
        int(checkpoint),
        int(attempts),
        detail,
    )


def _encode(change: Change) -> bytes:
    return json.dumps(dataclasses.astuple(change)).encode()


def _decode(data: bytes) -> Change:
    try:
        return Change(*json.loads(data))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not an entry of a history: {error}") from None


CHANGE = register(Codec("store: history entry", Change, _encode, _decode))


def change_text(change: Change) -> str:
    """A history entry as JSON."""
    return CHANGE.encode_text(change)


def change_from(text: str) -> Change:
    """The history entry that `change_text` told."""
    return CHANGE.decode_text(text)
