"""Test a handler without Ray: `pytest examples/testing_a_handler.py`, or run it.

The handler charges accounts in SQLite. Its tests kill it before its commit, take its partition away
in the middle of a message, and give it a message that it can never process.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pxrs_ray import Delivery, GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.sink import create_table
from pxrs_ray.testing import TestTopology

CONFIG = PxrsConfig(
    name="shop",
    queues={"payments": QueueConfig(partitions=4)},
    groups={"billing": GroupConfig(queue="payments", failure_policy="dead_letter", attempts_max=2)},
)


class Charge:
    """The handler under test: adds a payment to the balance of its account, exactly once."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def handle(self, message: Delivery) -> None:
        amount = int(message.payload)
        self.before_the_write()
        with message.transaction(self._database) as cursor:
            cursor.execute(
                "INSERT INTO balance VALUES (:account, :amount) "
                "ON CONFLICT (account) DO UPDATE SET amount = amount + :amount",
                {"account": (message.key or b"").decode(), "amount": amount},
            )

    def before_the_write(self) -> None:
        """Where a test interferes."""


@contextmanager
def bank() -> Iterator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(Path(folder) / "bank.db")
        create_table(database)
        database.execute("CREATE TABLE balance (account TEXT PRIMARY KEY, amount INTEGER)")
        database.commit()
        yield database
        database.close()


def balances(database: sqlite3.Connection) -> dict[str, int]:
    return dict(database.execute("SELECT account, amount FROM balance"))


def test_payments_add_up() -> None:
    with bank() as database, TestTopology(CONFIG) as t:
        t.group("billing", Charge(database), consumers=2)
        for number in range(20):
            t.send("payments", f"account-{number % 3}", f"{number}")
        t.run_until_idle(fail_fast=True)
        assert balances(database) == {"account-0": 63, "account-1": 70, "account-2": 57}


def test_a_crash_before_the_commit_charges_nobody_twice() -> None:
    with bank() as database, TestTopology(CONFIG) as t:
        t.group("billing", Charge(database))
        t.send("payments", "account-7", "3")
        t.run_until_idle()
        t.crash("billing")
        t.run_until_idle()
        assert [each.offset for each in t.delivered("billing")] == [0, 0]
        assert balances(database) == {"account-7": 3}


def test_a_stale_owner_charges_nobody() -> None:
    class Slow(Charge):
        slow = True

        def before_the_write(self) -> None:
            if self.slow:
                self.slow = False
                t.take_over("billing")  # another consumer gets the partition ...
                t.run_until_idle()  # ... and charges, while we are still at it

    with bank() as database, TestTopology(CONFIG) as t:
        t.group("billing", Slow(database))
        t.send("payments", "account-7", "3")
        t.run_until_idle()
        assert [each.outcome for each in t.delivered("billing")] == ["done", "void"]
        assert balances(database) == {"account-7": 3}


def test_what_is_no_amount_is_a_dead_letter() -> None:
    with bank() as database, TestTopology(CONFIG) as t:
        t.group("billing", Charge(database))
        t.send("payments", "account-7", "three")
        t.send("payments", "account-7", "4")
        t.advance(10)
        assert [letter.payload for letter in t.dead_letters("billing")] == [b"three"]
        assert balances(database) == {"account-7": 4}


def main() -> None:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name.replace('_', ' ')}: it holds")


if __name__ == "__main__":
    main()
