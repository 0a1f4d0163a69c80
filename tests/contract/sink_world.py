"""Owners of one partition that die, freeze and thaw in the middle of blocks, on a real database.

Rules of this file. Everything is one thread and one seed: a schedule says who makes the next step.
A step is what one call to the database is: a frozen owner stands still between two of them with
its transaction open; a killed one's transaction is undone, as the server does when a connection
breaks. A call that would wait for another's lock fails at once instead, and is tried again later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import Fenced
from pxrs_ray.model import Message
from pxrs_ray.sink.dialects import dialect_of

ACCOUNTS = 2
STEPS_MAX = 2_000


class Database:
    """Connections to one database, used again and again."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._free: list[Any] = []
        self._all: list[Any] = []
        setup = self.take()
        self.dialect = dialect_of(setup)
        for table in (
            "account (id VARCHAR(40) PRIMARY KEY, total INTEGER)",
            "applied (run VARCHAR(40), seen INTEGER, epoch INTEGER)",
        ):
            setup.cursor().execute(f"CREATE TABLE {table}")
        setup.commit()
        self.put(setup)

    def take(self) -> Any:
        if not self._free:
            self._free.append(self._connect())
            self._all.append(self._free[-1])
        return self._free.pop()

    def put(self, connection: Any) -> None:
        connection.rollback()
        self._free.append(connection)

    def close(self) -> None:
        for connection in self._all:
            connection.close()

    def run(self, connection: Any, statement: str, **binds: object) -> list[Any]:
        cursor = connection.cursor()
        cursor.execute(self.dialect.sql(statement), binds)
        return list(cursor.fetchall()) if statement.startswith("SELECT") else []


@contextmanager
def unguarded(database: Database, connection: Any) -> Iterator[None]:
    """What people write without a sink: their rows in a transaction, the checkpoint elsewhere."""
    database.dialect.begin(connection)
    try:
        yield
        database.dialect.commit(connection)
    finally:
        database.dialect.rollback(connection)


@dataclass
class World:
    """One partition, its registry, its owners."""

    database: Database
    run: str
    messages: int
    guarded: bool
    batches: bool
    seed: int
    epoch: int = 1
    checkpoint: int = 0
    committed: list[tuple[int, int]] = field(default_factory=list)

    def amount(self, offset: int) -> int:
        return 1 + (offset * 37 + self.seed) % 11

    def account(self, offset: int) -> str:
        return f"{self.run}/{offset % ACCOUNTS}"

    def expected(self) -> dict[str, int]:
        totals = {f"{self.run}/{number}": 0 for number in range(ACCOUNTS)}
        for offset in range(self.messages):
            totals[self.account(offset)] += self.amount(offset)
        return totals

    def block(
        self, delivery: Delivery | DeliveredBatch, connection: Any
    ) -> AbstractContextManager[Any]:
        if self.guarded:
            return delivery.transaction(connection)
        return unguarded(self.database, connection)

    def owner(self, draw: random.Random) -> Iterator[None]:
        """Work from the checkpoint on; ends when everything is done or the registry refuses."""
        epoch, at = self.epoch, self.checkpoint
        connection = self.database.take()
        shared = DeliveryContext("q", self.run, "m", epoch, 0, epoch, topology_id="t1")
        try:
            while at < self.messages:
                end = min(self.messages, at + (draw.randrange(1, 4) if self.batches else 1))
                try:
                    yield from self._apply(shared, connection, at, end)
                except Fenced:
                    return
                except Exception as error:
                    if "lock" not in str(error) and "SinkConflict" not in repr(error):
                        raise
                    yield
                    continue
                yield
                if self.epoch != epoch:
                    return
                self.checkpoint = at = end
                yield
        finally:
            self.database.put(connection)

    def _apply(self, shared: DeliveryContext, connection: Any, at: int, end: int) -> Iterator[None]:
        messages = [Message(0, o, b"k", b"", 0) for o in range(at, end)]
        delivery: Delivery | DeliveredBatch
        if self.batches:
            batch = Batch.of([b"k"] * len(messages), [b""] * len(messages), timestamp_ms=0)
            delivery = DeliveredBatch(Batch(0, at, batch.flags, batch.columns, 0), shared)
        else:
            delivery = Delivery(messages[0], shared)
        run = self.database.run
        with self.block(delivery, connection) as cursor:
            offsets = [m.offset for m in delivery] if isinstance(delivery, DeliveredBatch) else [at]
            for offset in offsets:
                yield
                account = self.account(offset)
                [(total,)] = run(connection, "SELECT total FROM account WHERE id = :id", id=account)
                yield
                run(
                    connection,
                    "UPDATE account SET total = :total WHERE id = :id AND total = :before",
                    total=total + self.amount(offset),
                    before=total,
                    id=account,
                )
                run(
                    connection,
                    "INSERT INTO applied (run, seen, epoch) VALUES (:run, :seen, :epoch)",
                    run=self.run,
                    seen=offset,
                    epoch=shared.epoch,
                )
            yield
        if cursor is None or not cursor.replayed:
            self.committed += [(shared.epoch, offset) for offset in offsets]


def play(world: World) -> None:
    """Let owners come and go until everything is done and nobody is left."""
    draw = random.Random(world.seed)
    setup = world.database.take()
    for account in world.expected():
        world.database.run(setup, "INSERT INTO account VALUES (:id, 0)", id=account)
    setup.commit()
    world.database.put(setup)
    alive: list[Iterator[None]] = [world.owner(draw)]
    frozen: list[Iterator[None]] = []
    for step in range(STEPS_MAX):
        if world.checkpoint >= world.messages and not alive and not frozen:
            return
        event = draw.random() if step < STEPS_MAX // 4 else 1.0
        if event < 0.06 and alive:
            frozen.append(alive.pop(draw.randrange(len(alive))))
        elif event < 0.12 and frozen:
            alive.append(frozen.pop(draw.randrange(len(frozen))))
        elif event < 0.15 and alive:
            _kill(alive.pop(draw.randrange(len(alive))))
        elif (event < 0.18 and len(alive) + len(frozen) < 4) or (not alive and not frozen):
            world.epoch += 2
            alive.append(world.owner(draw))
        elif not alive:
            alive.append(frozen.pop())
        else:
            owner = draw.choice(alive)
            try:
                next(owner)
            except StopIteration:
                alive.remove(owner)
    raise AssertionError(f"schedule {world.seed} came to no end")


def _kill(owner: Iterator[None]) -> None:
    """The process is gone at this very moment: nothing of it runs, its transaction is undone."""
    owner.close()  # type: ignore[attr-defined]


def outcome(world: World) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """What the database holds: the totals, and (offset, epoch) of everything applied."""
    connection = world.database.take()
    run = world.database.run
    totals = {
        account: run(connection, "SELECT total FROM account WHERE id = :id", id=account)[0][0]
        for account in world.expected()
    }
    rows = run(connection, "SELECT seen, epoch FROM applied WHERE run = :run", run=world.run)
    world.database.put(connection)
    return totals, sorted((int(seen), int(epoch)) for seen, epoch in rows)
