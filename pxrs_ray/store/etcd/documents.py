"""Documents in etcd: small ones in their key, large ones in pieces that their key names.

Rules of this file. A request of more than 1.5 MB is refused by etcd, so a large document is first
written piece by piece under a fresh edition, and then one fenced transaction makes its key name
that edition. A reader that meets pieces being replaced reads the key again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.store.deadline import Deadline
from pxrs_ray.store.etcd.connection import EtcdConnection
from pxrs_ray.store.etcd.keys import GroupKeys, value_of, values_of

PIECE_CHARS = 250_000
_INLINE, _IN_PIECES = "=", "#"


class EtcdDocuments:
    """Reads and writes documents."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._etcd = connection

    def put(
        self, deadline: Deadline, keys: GroupKeys, leads: list[Any], name: str, text: str
    ) -> bool:
        """Store a document, or remove it by ''; False when `leads` does not hold."""
        etcd, key = self._etcd, keys.document(name)
        _, (answer,) = etcd.txn(deadline, [], [etcd.get(key)])
        before = value_of(answer)
        edition = ""
        if not text:
            change = etcd.delete(key)
        elif len(text) <= PIECE_CHARS:
            change = etcd.put(key, _INLINE + text)
        else:
            edition = secrets.token_hex(8)
            count = self._put_pieces(deadline, keys.pieces(name, edition), text)
            change = etcd.put(key, f"{_IN_PIECES}{edition};{count}")
        holds, _ = etcd.txn(deadline, leads, [change])
        stale = _edition(before) if holds else edition
        if stale:
            prefix = keys.pieces(name, stale)
            etcd.txn(deadline, [], [etcd.delete(prefix, prefix[:-1] + "0")])
        return holds

    def read_all(self, deadline: Deadline, keys: GroupKeys) -> Mapping[str, str]:
        """Every document by name."""
        etcd = self._etcd
        _, (answer,) = etcd.txn(deadline, [], [etcd.under(f"{keys.base}d/")])
        found = {}
        for quoted, value in values_of(answer).items():
            name = unquote(quoted)
            text = self._read(deadline, keys, name, value)
            if text is not None:
                found[name] = text
        return found

    def _put_pieces(self, deadline: Deadline, prefix: str, text: str) -> int:
        starts = range(0, len(text), PIECE_CHARS)
        for number, start in enumerate(starts):
            piece = text[start : start + PIECE_CHARS]
            self._etcd.txn(deadline, [], [self._etcd.put(f"{prefix}{number:06d}", piece)])
        return len(starts)

    def _read(
        self, deadline: Deadline, keys: GroupKeys, name: str, value: str | None
    ) -> str | None:
        """The text that a document's key tells; None when it was removed meanwhile."""
        etcd = self._etcd
        while value is not None and value.startswith(_IN_PIECES):
            edition, _, count = value[1:].partition(";")
            prefix = keys.pieces(name, edition)
            pieces: dict[str, str] = {}
            for number in range(int(count)):
                read = etcd.get(f"{prefix}{number:06d}")
                pieces.update(values_of(etcd.txn(deadline, [], [read])[1][0]))
            if len(pieces) == int(count):
                return "".join(pieces[number] for number in sorted(pieces))
            _, (answer,) = etcd.txn(deadline, [], [etcd.get(keys.document(name))])
            again = value_of(answer)
            if again == value:  # pieces are there before the key names them, and go after it
                raise StoreCorrupted(
                    f"document {name!r}: {len(pieces)} of {count} pieces are in etcd under {prefix}"
                )
            value = again
        return None if value is None else value[1:]


def _edition(value: str | None) -> str:
    """The edition whose pieces a document's key names, '' when there are none."""
    if value is None or not value.startswith(_IN_PIECES):
        return ""
    return value[1:].partition(";")[0]
