"""What SQL databases say differently: types, clocks, inserts that ignore, rows updated one by one.

Rules of this file. Statements are written with `:name` binds and every statement uses each of its
binds; a dialect turns them into what its driver reads. Nothing here connects to anything.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from pxrs_ray.late_dataclass import dataclass

Values = Mapping[str, object]

_BIND = re.compile(r"(?<![:\w]):([a-z]\w*)")


class Cursor(Protocol):
    """The part of a DB-API cursor that the SQL stores use."""

    @property
    def rowcount(self) -> int:
        """The rows that the last statement changed."""

    def execute(self, sql: Any, parameters: Any = ..., /) -> Any:
        """Run one statement."""

    def executemany(self, sql: Any, parameters: Any, /) -> Any:
        """Run one statement for every set of parameters."""

    def fetchall(self) -> Sequence[Any]:
        """Every row of the last query."""


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """A conditional UPDATE that is applied to many rows at once, with one answer a row.

    No two of the rows may be the same. `each` are the binds that differ from row to row with
    their types, the row's key first; `shared` are the binds that are the same for all.
    """

    table: str
    sets: str
    where: str
    each: tuple[tuple[str, str], ...]
    shared: tuple[str, ...]

    @property
    def sql(self) -> str:
        """The statement for one row."""
        return f"UPDATE {self.table} SET {self.sets} WHERE {self.where}"


class Dialect(ABC):
    """One database's forms of types and statements. The defaults are what most of them share."""

    name: str
    integer = "BIGINT"
    timestamp = "TIMESTAMP"
    locking = " FOR UPDATE"
    document_chars = 1_000_000
    """How many characters of a document fit into one row."""

    @property
    @abstractmethod
    def now(self) -> str:
        """The database's own clock, as it is at this statement."""

    @abstractmethod
    def later(self, seconds: str) -> str:
        """The database's now plus the bind `seconds`."""

    def text(self, chars: int) -> str:
        """The type of a text of up to `chars` characters."""
        return f"VARCHAR({chars})"

    def create_table(self, table: str, body: str) -> str:
        """Make a table unless it is there."""
        return f"CREATE TABLE IF NOT EXISTS {table} ({body})"

    def insert_new(self, table: str, columns: Mapping[str, str], keys: Sequence[str]) -> str:
        """Insert a row unless one with these keys is there; its row count tells."""
        return (
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(columns.values())}) "
            f"ON CONFLICT ({', '.join(keys)}) DO NOTHING"
        )

    def page(self, skip: int, count: int) -> str:
        """The end of a query that wants `count` rows after the first `skip`."""
        return f" OFFSET {int(skip)} ROWS FETCH NEXT {int(count)} ROWS ONLY"

    def finish(self, sql: str) -> str:
        """The statement as the driver reads it."""
        return sql

    @abstractmethod
    def update_each(
        self, cursor: Any, update: RowUpdate, shared: Values, rows: Sequence[Values]
    ) -> list[bool]:
        """Apply `update` to every one of `rows`, and tell of each whether it took effect."""


@lru_cache(maxsize=1_000)
def pyformat(sql: str) -> str:
    """`sql` with `%(name)s` in place of `:name`."""
    return _BIND.sub(r"%(\1)s", sql.replace("%", "%%"))
