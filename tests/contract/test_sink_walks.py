"""Random walks over a fenced sink: exactly what was applied is known as applied, and nothing else.

Rules of this file. Each step is what an owner may do: messages and batches, first or again, in any
order (lanes, skips and seeks make all of them), under rising epochs, for two topologies on one
database, with blocks that fail and connections that are dropped. The model is a set of offsets.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest

from pxrs_ray.errors import Fenced
from pxrs_ray.sink import transaction
from pxrs_ray.sink.applied import PAGE_OFFSETS
from pxrs_ray.sink.transaction import SinkPlace

WALKS = 25
STEPS = 60
# Around the ends of pages is where a page may be taken for another.
BASES = (0, PAGE_OFFSETS - 6, 3 * PAGE_OFFSETS - 6)


class Walk:
    """One database, two topologies, and what each of them has applied."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = Random(seed)
        self.path = path
        self.epochs = {"eu": 1, "us": 1}
        self.applied: dict[str, set[int]] = {"eu": set(), "us": set()}
        with self.connection() as made:
            made.execute("CREATE TABLE result (topology TEXT, seen INTEGER)")
            made.commit()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path)) as made:
            made.execute("PRAGMA synchronous = OFF")
            yield made

    def step(self) -> None:
        """Somebody delivers something."""
        rng = self.rng
        topology = rng.choice(("eu", "us"))
        first = rng.choice(BASES) + rng.randrange(12)
        end = first + rng.choice((1, 1, 1, 4, PAGE_OFFSETS))
        fails, late = rng.random() < 0.2, rng.random() < 0.1 and bool(self.applied[topology])
        if rng.random() < 0.2:
            self.epochs[topology] += 1
            late = False
        place = SinkPlace(topology, "q", "g", 0, self.epochs[topology] - late)
        stale = place.epoch < self.written_under(topology)
        missing = [range(first, end)]
        try:
            with (
                self.connection() as connection,
                transaction(
                    connection,
                    place,
                    first,
                    end,
                    lambda runs: missing.__setitem__(slice(None), [range(*run) for run in runs]),
                ) as cursor,
            ):
                left = {offset for run in missing for offset in run}
                assert left == set(range(first, end)) - self.applied[topology]
                assert cursor.replayed == (not left)
                for offset in sorted(left):
                    cursor.execute("INSERT INTO result VALUES (?, ?)", (topology, offset))
                if fails:
                    raise ValueError("the message fails, and its policy may skip it")
        except ValueError:
            assert left and not stale, "what is replayed fails in vain"
        except Fenced:
            assert stale
        else:
            assert not stale and not (fails and left)
            self.applied[topology] |= left

    def written_under(self, topology: str) -> int:
        """The highest epoch that has written."""
        with self.connection() as connection:
            asked = "SELECT epoch FROM pxrs_sink_owner WHERE topology_id = ?"
            try:
                found = connection.execute(asked, (topology,)).fetchone()
            except sqlite3.OperationalError:  # nobody has begun a block in this database yet
                found = None
        return int(found[0]) if found is not None else 0

    def check(self) -> None:
        """What is in the database is what was applied, once."""
        with self.connection() as connection:
            for topology, applied in self.applied.items():
                asked = "SELECT seen FROM result WHERE topology = ? ORDER BY seen"
                found = [row[0] for row in connection.execute(asked, (topology,))]
                assert found == sorted(applied)


@pytest.mark.parametrize("seed", range(WALKS))
def test_no_walk_loses_or_doubles_a_row(seed: int, tmp_path: Path) -> None:
    walk = Walk(tmp_path / "user.db", seed)
    for _ in range(STEPS):
        walk.step()
    walk.check()
