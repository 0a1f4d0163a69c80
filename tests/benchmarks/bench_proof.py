"""How far the nets prove themselves: guards noticed, steps failed, types without a codec's test."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue

from tests import faults
from tests.benchmarks.harness import figure, figures
from tests.benchmarks.persisted import untested
from tests.faults import FaultReport
from tests.simulation.guard_runs import WorkingCopy, missed
from tests.simulation.mutations import MUTATIONS, Mutation

# Each has `run() -> FaultReport`; whatever else lies beside them is what they are made of.
NETS = tuple(
    sorted(
        path.stem
        for path in Path(faults.__file__).parent.glob("*.py")
        if not path.stem.startswith(("_", "test_")) and "\ndef run(" in path.read_text()
    )
)


@figures({"proof.guards": "guards", "proof.guards_missed": "guards"}, runs=1, warmups=0)
def guards() -> dict[str, float]:
    """Take each guard out, and see whether a net notices; those that are missed are told."""
    with tempfile.TemporaryDirectory(prefix="pxrs-guards-") as folder:
        copies: SimpleQueue[WorkingCopy] = SimpleQueue()
        workers = os.cpu_count() or 1
        for number in range(workers):
            copies.put(WorkingCopy(Path(folder, str(number))))

        def missed_in_one(mutation: Mutation) -> str:
            copy = copies.get()
            try:
                return missed(mutation, copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(workers) as pool:
            told = list(pool.map(missed_in_one, MUTATIONS))
        for _ in range(workers):
            copies.get().close()
    for text in filter(None, told):
        print(text, file=sys.stderr)
    count = sum(map(bool, told))
    return {"proof.guards": len(MUTATIONS) - count, "proof.guards_missed": count}


@figure("proof.faulted_steps", unit="steps", runs=1, warmups=0)
def faulted_steps() -> float:
    """Fail every step of every net; a promise that breaks makes the figure fail."""
    report = FaultReport(0)
    for name in NETS:
        with _said(name):
            report += import_module(f"tests.faults.{name}").run()
    assert not report.failures, "\n".join(report.failures)
    return report.steps


@figure("proof.persisted_types_untested", unit="types", runs=1, warmups=0)
def persisted_types_untested() -> float:
    """Count what is kept and read again without a codec that the property test covers."""
    found = untested()
    for text in found:
        print(text, file=sys.stderr)
    return len(found)


@contextmanager
def _said(name: str) -> Iterator[None]:
    print(f"net {name} ...", file=sys.stderr, flush=True)
    yield
