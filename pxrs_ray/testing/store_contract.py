"""The contract suite that every registry store passes, ours and yours.

With pytest, subclass and say how to open a store:

    from pxrs_ray.testing.store_contract import StoreContract

    class TestMyStore(StoreContract):
        def open_store(self) -> RegistryStore:
            return MyStore(...)     # one more client of the same registry at each call

Without pytest, `run_contract(open_store)` runs the same tests and tells what failed.

Rules of this file. The tests are in `store_checks`, by subject; this only joins and runs them.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.testing.store_checks.documented import DocumentedChecks
from pxrs_ray.testing.store_checks.lease_checks import LeaseChecks
from pxrs_ray.testing.store_checks.ownership import OwnershipChecks
from pxrs_ray.testing.store_checks.races import RaceChecks
from pxrs_ray.testing.store_checks.registry_checks import RegistryChecks


class StoreContract(DocumentedChecks, OwnershipChecks, LeaseChecks, RegistryChecks, RaceChecks):
    """All promises of `RegistryStore`, one test each. See `ContractBase` for what to override."""


@dataclass(frozen=True, slots=True)
class ContractResult:
    """How one test of the suite ended; `failure` is '' when it passed."""

    test: str
    seconds: float
    failure: str

    @property
    def passed(self) -> bool:
        """Whether the store kept this promise."""
        return not self.failure


def contract_tests() -> tuple[str, ...]:
    """Name every test of the suite."""
    return tuple(name for name in dir(StoreContract) if name.startswith("test_"))


def run_contract(
    open_store: Callable[[], RegistryStore],
    *,
    claim_race_rounds: int = StoreContract.claim_race_rounds,
    report: Callable[[ContractResult], None] | None = None,
) -> list[ContractResult]:
    """Run the suite on the registry that `open_store` opens, and return every result.

    `report` is called after each test. The suite works in groups of its own names and removes
    them; other groups of the registry are not touched.
    """
    results = []
    for test in contract_tests():
        suite = StoreContract()
        suite.claim_race_rounds = claim_race_rounds
        suite.open_store = open_store  # type: ignore[method-assign]
        started = time.monotonic()
        failure = _run(suite, test)
        result = ContractResult(test, time.monotonic() - started, failure)
        results.append(result)
        if report is not None:
            report(result)
    return results


def _run(suite: StoreContract, test: str) -> str:
    """Run one test with its setup and teardown; the failure in words, or ''."""
    try:
        suite.setup_method()
        try:
            getattr(suite, test)()
        finally:
            suite.teardown_method()
    except Exception as error:  # noqa: BLE001 (whatever a foreign store raises is its failure)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({last.name}, line {last.lineno})"
    return ""
