"""Fixtures of the contract tests: an Oracle server, and one empty database of it for a test."""

from __future__ import annotations

from tests.contract.oracle_database import database as database
from tests.contract.oracle_database import stand_in as stand_in
from tests.contract.oracle_database import table as table
from tests.contract.oracle_fixture import oracle_server as oracle_server
