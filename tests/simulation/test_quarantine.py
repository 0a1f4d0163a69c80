"""What was put aside comes again in its order and once, whoever dies between which steps."""

from __future__ import annotations

import pytest

from tests.simulation.quarantine_world import run


@pytest.mark.parametrize("seed", range(40))
def test_each_message_is_done_in_the_order_of_its_key_and_none_is_lost(seed: int) -> None:
    assert run(seed) == []
