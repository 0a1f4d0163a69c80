"""The handler of the demonstration: a balance per account that is right after any crash.

Rules of this file. The balances of a partition stand in a file of its own, and change within
`batch.transaction`: a payment that is delivered twice, or to two consumers, is counted once. No
Spark is imported here, for consumers need none.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pxrs_ray.consumer.delivery import DeliveredBatch

BUSY_MS_MAX = 5_000
FOLDER_VARIABLE = "PXRS_BALANCES"
DEFAULT_FOLDER = "~/.pxrs/balances"

_TABLE = """create table if not exists balances
(account text primary key, cents integer, payments integer)"""
_COUNT = """insert into balances values (?, ?, ?) on conflict (account) do update
set cents = cents + excluded.cents, payments = payments + excluded.payments"""


class Balances:
    """The handler: adds up each account's payments in a file per partition.

    The files are in `folder`; left out, in the folder that PXRS_BALANCES names.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = Path(folder or os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER)).expanduser()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[int, sqlite3.Connection] = {}

    def handle_batch(self, batch: DeliveredBatch) -> None:
        """Count what of the batch was not counted before."""
        with batch.transaction(self._file(batch.context.partition)) as cursor:
            # In here the batch holds only what is not in the file already.
            cursor.executemany(_COUNT, _sums(batch.batch.keys, batch.batch.payloads))

    def _file(self, partition: int) -> sqlite3.Connection:
        if partition not in self._files:
            path = self._folder / f"balances-{partition}.db"
            self._files[partition] = database = sqlite3.connect(
                path, timeout=BUSY_MS_MAX / 1_000, check_same_thread=False
            )
            database.execute("pragma journal_mode = wal")
            database.execute(_TABLE)
        return self._files[partition]


_handlers: dict[str, Balances] = {}


def count_payments(folder: str, batch: DeliveredBatch) -> None:
    """Count a batch, with one `Balances` a process."""
    _handlers.setdefault(folder, Balances(folder)).handle_batch(batch)


def kept_balances(folder: Path) -> dict[str, tuple[int, int]]:
    """What the consumers have kept: (cents, payments) by account."""
    found: dict[str, tuple[int, int]] = {}
    for path in folder.glob("balances-*.db"):
        with closing(sqlite3.connect(path)) as database:
            for account, cents, payments in database.execute("select * from balances"):
                assert account not in found, "an account is on one partition"
                found[account] = (cents, payments)
    return found


def _sums(keys: pa.Array, payloads: pa.Array) -> list[tuple[Any, ...]]:
    cents = pc.cast(pc.cast(payloads, pa.string()), pa.int64())
    table = pa.table({"account": pc.cast(keys, pa.string()), "cents": cents})
    sums = table.group_by("account").aggregate([("cents", "sum"), ("cents", "count")])
    order = ["account", "cents_sum", "cents_count"]
    return list(zip(*(sums.column(name).to_pylist() for name in order), strict=True))
