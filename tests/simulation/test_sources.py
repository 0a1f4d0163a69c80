"""Readers of an external queue share it, whoever dies, moves, is cut off or reads late."""

from __future__ import annotations

import pytest

from tests.simulation.source_world import run


@pytest.mark.parametrize("seed", range(40))
def test_each_record_is_worked_in_order_and_none_is_lost(seed: int) -> None:
    assert run(seed) == []
