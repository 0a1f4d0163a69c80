"""The Oracle server of the contract tests: the stand-in on both engines, or a real database.

Rules of this file. With PXRS_TEST_ORACLE_DSN (a store URL, oracle://user:password@host/service)
the tests run on that database alone, and those that arm faults are skipped. Without it they run on
the stand-in, once on each engine: one server repeats the row counts of arrays, the other does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.contract.oracle_stand_in import OracleStandIn, missing
from tests.servers import skip_or_fail

DSN_VARIABLE = "PXRS_TEST_ORACLE_DSN"


@dataclass(frozen=True, slots=True)
class OracleServer:
    """What the Oracle tests connect to. `stand_in` is None where the database is a real one."""

    url: str
    stand_in: OracleStandIn | None

    def faulty(self) -> OracleStandIn:
        """The stand-in, whose faults can be armed; skips the test on a real database."""
        if self.stand_in is None:
            pytest.skip("faults cannot be armed in a real database")
        return self.stand_in


def _engines() -> list[str]:
    return ["real"] if os.environ.get(DSN_VARIABLE) else ["hsqldb", "h2"]


@pytest.fixture(scope="session", params=_engines())
def oracle_server(request: pytest.FixtureRequest) -> Iterator[OracleServer]:
    """An Oracle server for the whole run; a test that breaks it heals it (see `healed`)."""
    real = os.environ.get(DSN_VARIABLE)
    if real:
        yield OracleServer(real, None)
        return
    if (wanted := missing()) is not None:
        skip_or_fail(f"the Oracle stand-in needs {wanted}")
    engine = request.param
    with OracleStandIn(engine, repeat_row_counts=engine == "hsqldb") as stand_in:
        yield OracleServer(stand_in.url, stand_in)
        healed(stand_in)


def healed(stand_in: OracleStandIn) -> OracleStandIn:
    """The stand-in without armed faults, thawed and listening."""
    stand_in.thaw()
    stand_in.disarm()
    stand_in.come_up()
    return stand_in
