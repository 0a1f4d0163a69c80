"""`pxrs stack`: a handler that hangs tells where, a process that is frozen that it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cluster
from tests.cli.console import Console
from tests.cli.desk import TOPOLOGY, until

pytestmark = pytest.mark.ray

HANDLERS = """
import time

def waits_for_ever():
    time.sleep(3_600)

def handle(message):
    waits_for_ever()
"""


@pytest.fixture
def stuck(cluster: Cluster, tmp_path: Path) -> Iterator[Console]:
    """A terminal beside a topology whose handler hangs."""
    (tmp_path / "stuck_handlers.py").write_text(HANDLERS)
    text = TOPOLOGY.format(options="").replace('"desk"', '"stuck"')
    (tmp_path / "stuck.toml").write_text(text.replace("desk_handlers", "stuck_handlers"))
    cluster.pxrs("up", "stuck.toml", cwd=tmp_path)
    console = cluster.open_console(tmp_path)
    yield console
    console.close()
    cluster.console.run("down", "stuck", "--now")


def test_hung_and_frozen(stuck: Console) -> None:
    stuck.shown("produce", "orders", "x", "-k", "a", "-t", "stuck")
    on = ("-t", "stuck")

    def caller() -> str | None:
        found = stuck.told("status", "billing", *on)
        return next((p["owner"] for p in found["partitions"] if p["call_offset"] == 0), None)

    until(lambda: caller() is not None)
    member = str(caller())
    shown = stuck.shown("stack", member, *on)
    assert "in a call: P" in shown and "offset 0" in shown
    assert "in waits_for_ever: time.sleep(3_600)" in shown and "MainThread" not in shown
    assert "MainThread" in stuck.shown("stack", f"billing/{member}", "--all", *on)
    told = stuck.told("stack", member, *on)
    assert told["calls"][0]["offset"] == 0 and any(t["working"] for t in told["threads"])
    other = next(
        c for c in stuck.told("status", "billing", *on)["consumers"] if c["member"] != member
    )
    assert "no call of its handler is under way" in stuck.shown("stack", other["member"], *on)
    os.kill(other["pid"], signal.SIGSTOP)
    try:
        frozen = stuck.shown("stack", other["member"], *on)
        assert "frozen: it was stopped (SIGSTOP)" in frozen and "pxrs restart billing/" in frozen
    finally:
        os.kill(other["pid"], signal.SIGCONT)
    status, _, err = stuck.run("stack", "biling-0", *on)
    assert status == 1 and "did you mean 'billing/billing-" in err and len(err.splitlines()) == 1
