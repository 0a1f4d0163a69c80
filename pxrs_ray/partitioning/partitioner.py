"""`Partitioner`: which partition a message goes to, for one key or a whole column of them.

Rules of this file. Every strategy gives a message a window of partitions and a place in it:

* `modulo`       all partitions; the place is the floor modulo of the signed hash (the default)
* `jump`         all partitions; the place is by jump consistent hashing
* `tenant`       `tenant_span` partitions from hash(tenant) on, so that one tenant cannot flood
                 all; with a span of 1 a tenant's messages stay in order. Without a tenant: all
* `label`        the partitions of the message's label; the place is as for `modulo`
* `round_robin`  all partitions in turn, whatever the key
* `broadcast`    a copy to every partition

A message without a key takes the next place in turn, so that keyless messages spread evenly.
The turn is the only state, and starting from the same turn gives the same partitions again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pxrs_ray.errors import UsageError
from pxrs_ray.model import PARTITIONS_MAX, PartitionId, Strategy
from pxrs_ray.partitioning.hashes import HASHES, SEED, Key, hash_runs, key_bytes
from pxrs_ray.partitioning.key_columns import Ints, Rows, key_columns
from pxrs_ray.partitioning.strategies import jump, jump_many, modulo, modulo_many
from pxrs_ray.suggest import pick

PartitionArray: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Numbers: TypeAlias = "int | Ints"

STRATEGIES = tuple(each.value for each in Strategy)
# As many as two bytes tell apart, which is also what numpy sorts by radix.


class Partitioner:
    """One way to spread messages over `partitions`. It belongs to one producer: not thread-safe.

    `scope`, where a method takes one, is the message's tenant or label; the other strategies
    ignore it. `labels` gives each label its number of partitions, together all of them, in
    order. `turn` is where messages without a key, or `round_robin`, start.

    Raises UsageError for names or numbers that make no sense.
    """

    def __init__(
        self,
        partitions: int,
        strategy: str = Strategy.MODULO,
        hash_name: str = "xxh64",
        seed: int = SEED,
        *,
        tenant_span: int = 1,
        labels: Mapping[str, int] | None = None,
        turn: int = 0,
    ) -> None:
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise UsageError(f"partitions is {partitions}; allowed are 1 to {PARTITIONS_MAX:,}")
        if not 1 <= tenant_span <= partitions:
            raise UsageError(f"tenant_span is {tenant_span}; allowed are 1 to {partitions}")
        self.partitions = partitions
        self.strategy = pick("strategy", strategy, {name: name for name in STRATEGIES})
        self.hash_name = hash_name
        self.turn = turn
        self._hash = pick("hash", hash_name, HASHES)
        self._seed = seed
        self._tenant_span = tenant_span
        self._labels = _label_windows(strategy, partitions, labels)
        # Asked of each message: an enum's member takes longer to look up than to compare.
        self._in_turn = strategy == Strategy.ROUND_ROBIN
        self._to_all = strategy == Strategy.BROADCAST
        self._by_label = strategy == Strategy.LABEL
        self._by_tenant = strategy == Strategy.TENANT
        self._spread = jump if strategy == Strategy.JUMP else modulo
        self._spread_many = jump_many if strategy == Strategy.JUMP else modulo_many

    def partition(self, key: Key | None, scope: str | None = None) -> PartitionId:
        """The one partition of a message. Raises UsageError for `broadcast`, which has no one."""
        self.refuse_broadcast()
        first, size = self.window(scope)
        if key is None or self._in_turn:
            place = modulo(self.turn, size)
            self.turn += 1
        else:
            place = self._spread(self._hash.one(key_bytes(key), self._seed), size)
        return (first + place) % self.partitions

    def partitions_of(self, key: Key | None, scope: str | None = None) -> tuple[PartitionId, ...]:
        """Every partition that gets a copy of a message: one, or all of them for `broadcast`."""
        if self._to_all:
            return tuple(range(self.partitions))
        return (self.partition(key, scope),)

    def partition_column(self, column: Any, scopes: Any = None) -> PartitionArray:
        """`partition` of each row of an Arrow column, as the narrowest unsigned integers.

        Equal to calling `partition` row by row. Raises UsageError as that does, for a column
        that is neither strings nor binaries, and for `scopes` of another length.
        """
        self.refuse_broadcast()
        partitions = np.empty(len(column), np.min_scalar_type(self.partitions - 1))
        firsts, sizes = self._windows(len(column), scopes)
        start = 0
        for keys in key_columns(column):
            here = slice(start, start + len(keys))
            start = here.stop
            first, size = _part(firsts, here), _part(sizes, here)
            if self._in_turn:
                self._fill_in_turn(partitions[here], np.arange(len(keys)), first, size)
                continue
            for rows, hashes in hash_runs(keys, self._hash, self._seed):
                places = self._spread_many(hashes, _part(size, rows))
                partitions[here][rows] = self._absolute(_part(first, rows), places)
            if keys.valid is not None:
                self._fill_in_turn(partitions[here], np.flatnonzero(~keys.valid), first, size)
        return partitions

    def _fill_in_turn(
        self, partitions: PartitionArray, rows: npt.NDArray[np.intp], first: Numbers, size: Numbers
    ) -> None:
        """Give `rows`, in their order, the next places in turn."""
        turns = np.arange(self.turn, self.turn + len(rows), dtype=np.int64)
        places = modulo_many(turns, _part(size, rows))
        partitions[rows] = self._absolute(_part(first, rows), places)
        self.turn += len(rows)

    def _absolute(self, first: Numbers, places: Ints) -> Ints:
        if isinstance(first, int) and first == 0:
            return places
        return modulo_many(places + first, self.partitions)

    def window(self, scope: str | None) -> tuple[PartitionId, int]:
        """The first partition of a message's window, and how many there are.

        Raises UsageError for a label that is missing or unknown.
        """
        if self._by_label:
            if scope is None:
                raise UsageError("strategy 'label' needs the label of each message as its scope")
            return pick("label", scope, self._labels)
        if self._by_tenant and scope is not None:
            hashed = self._hash.one(key_bytes(scope), self._seed)
            return modulo(hashed, self.partitions), self._tenant_span
        return 0, self.partitions

    def _windows(self, rows: int, scopes: Any) -> tuple[Numbers, Numbers]:
        """`window` of every row: two numbers where all are alike, otherwise two arrays."""
        if scopes is None or not (self._by_tenant or self._by_label):
            return self.window(None) if rows else (0, self.partitions)
        if len(scopes) != rows:
            raise UsageError(f"{rows} keys came with {len(scopes)} scopes")
        if not isinstance(scopes, pa.Array | pa.ChunkedArray):
            scopes = pa.array(scopes, pa.large_string())
        scopes = scopes.cast(pa.large_string())
        distinct = scopes.unique()
        windows = [self.window(scope) for scope in distinct.to_pylist()]
        import pyarrow.compute as pc  # here: only batches whose rows differ need it

        which = pc.index_in(scopes, distinct).to_numpy()
        firsts, sizes = np.array(windows, np.int64).reshape(-1, 2).T
        return firsts[which], sizes[which]

    def refuse_broadcast(self) -> None:
        """Raise UsageError where a message has no one partition."""
        if self._to_all:
            raise UsageError("strategy 'broadcast' has no single partition: see partitions_of")


def _part(numbers: Numbers, rows: Rows) -> Numbers:
    return numbers if isinstance(numbers, int) else numbers[rows]


def _label_windows(
    strategy: str, partitions: int, labels: Mapping[str, int] | None
) -> dict[str, tuple[PartitionId, int]]:
    """The window of each label: they lie side by side in the order of the mapping."""
    if strategy != Strategy.LABEL:
        if labels is not None:
            raise UsageError(f"strategy {strategy!r} takes no labels")
        return {}
    sizes = labels or {}
    if sum(sizes.values()) != partitions or any(size < 1 for size in sizes.values()):
        raise UsageError(
            f"labels must share out exactly {partitions} partitions, at least 1 each; "
            f"given was {dict(sizes)}"
        )
    firsts = accumulate(sizes.values(), initial=0)
    return {
        label: (first, size) for first, (label, size) in zip(firsts, sizes.items(), strict=False)
    }
