"""Random faults on real Ray for a while; the longer one is `make chaos MINUTES=10`."""

from __future__ import annotations

import pytest

from tests.actors.chaos import run_chaos
from tests.actors.conftest import Stage
from tests.servers import PostgresServer

pytestmark = [pytest.mark.ray, pytest.mark.slow]

# Each kind of fault comes once, and then some as the dice fall.
SECONDS = 24.0
SEED = 4


def test_chaos_loses_nothing_and_keeps_the_order(
    stage: Stage, postgres_server: PostgresServer
) -> None:
    folder = stage.folder / "chaos"
    folder.mkdir()
    try:
        done, wrong = run_chaos(folder, stage.config().name, SECONDS, SEED, postgres_server)
    finally:
        postgres_server.heal()
    print(dict(done))
    assert wrong == []
    assert done["consumer killed"] and done["consumer frozen"] and done["coordinator killed"]
