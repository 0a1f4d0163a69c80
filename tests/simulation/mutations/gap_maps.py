"""Guards of the gap map: what was told stays told, and no record is worth more than its row."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

WORLD = "tests/simulation/test_gaps.py"
UNIT = "tests/unit/test_gap_map.py"


def _guard(guard: str, before: str, after: str, *tests: str) -> Mutation:
    change = Change("processing/gap_map.py", before, after)
    return Mutation(guard, (change,), tests=tests or (WORLD,))


GAP_MAPS = (
    _guard(
        "records of another epoch tell nothing",
        "            if epoch != named.epoch:\n",
        "            if False:\n",
        UNIT,
    ),
    _guard(
        "no record tells of more than its row",
        "min(end, named.high)",
        "end",
        UNIT,
    ),
    _guard(
        "an owner's first record tells everything",
        "is_full = not self._is_own or self._more_chars > more_max",
        "is_full = self.named is None or self._more_chars > more_max",
    ),
    _guard(
        "what is done while a record is written stays in the row",
        "self._row, self._is_own = self._since, True",
        "self._row, self._is_own = _Part(DoneRanges(self.done.low), {}), True",
    ),
    _guard(
        "what was told stays told while the row is full",
        "        return self._encoded(self._told, suspicion)\n",
        "        return self._encoded(_Part(DoneRanges(self.done.low), {}), suspicion)\n",
    ),
    _guard(
        "a record that was refused is nowhere",
        "            self.refused(record)\n",
        "            self.kept(record, 0)\n",
    ),
    _guard(
        "the row stays as it is until its records are read",
        "        if self.is_unread:\n            return self._encoded",
        "        if False:\n            return self._encoded",
        UNIT,
    ),
)
