"""A server that stands in for an Oracle Database in tests: see `stand_in.py`."""

from __future__ import annotations

from tests.contract.oracle_stand_in.faults import Fault as Fault
from tests.contract.oracle_stand_in.stand_in import OracleStandIn as OracleStandIn
from tests.contract.oracle_stand_in.stand_in import StandInMissing as StandInMissing
from tests.contract.oracle_stand_in.stand_in import missing as missing
