"""Every metric that the documentation names comes out of a real cluster's metrics port."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from pxrs_ray.actors.coordinator.metrics import METRICS
from tests.cli.conftest import Cluster

pytestmark = pytest.mark.ray

WAIT_S = 120.0
HANDLERS = """
seen = set()

def handle(message):
    if message.payload == b"once" and message.offset not in seen:
        seen.add(message.offset)
        raise ValueError("the first time")
"""
TOPOLOGY = """
name = "measured"
buffers = 1
[queues.orders]
partitions = 2
[groups.billing]
queue = "orders"
handler = "metric_handlers:handle"
consumers = 1
backoff_ms = 3000
"""
# They count what does not happen here: it takes another node, or something that is broken.
RARE = {
    "fenced_calls",
    "buffer_fenced_reads",
    "buffer_refused_appends",
    "buffer_link_calls",
    "buffer_strangers",
    "given_up",
}


def scraped(cluster: Cluster) -> str:
    """What Prometheus would read, of all ports that Ray tells it about."""
    places = json.loads((cluster.folder / "ray/prom_metrics_service_discovery.json").read_text())
    found = []
    for target in (target for place in places for target in place["targets"]):
        # Ray names places of processes that have just begun, or just ended, as well.
        url = f"http://{target}/metrics"
        with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
            found.append(answer.read().decode())
    return "\n".join(found)


def test_every_metric_can_be_scraped(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "metric_handlers.py").write_text(HANDLERS)
    (tmp_path / "measured.toml").write_text(TOPOLOGY)
    cluster.pxrs("up", "measured.toml", cwd=tmp_path)
    try:
        told = ""
        missing = set(METRICS)
        end_s = time.monotonic() + WAIT_S
        while missing - RARE:
            assert time.monotonic() < end_s, f"never told: {missing}"
            cluster.pxrs("produce", "-t", "measured", "orders", "once", "well", "-k", "a")
            cluster.pxrs("scale", "-t", "measured", "billing", "2")
            cluster.pxrs("scale", "-t", "measured", "billing", "1")
            # One scrape lacks what Ray's exporter brings a moment late on a busy machine.
            told += scraped(cluster)
            mine = [line for line in told.splitlines() if 'topology="measured"' in line]
            names = {re.split(r"[{ ]", line)[0].removeprefix("ray_pxrs_") for line in mine}
            missing = {
                name
                for name, (kind, _, _) in METRICS.items()
                if {"counter": f"{name}_total", "histogram": f"{name}_count"}.get(kind, name)
                not in names
            }
        assert re.search(r'ray_pxrs_rebalances_total\{[^}]*cause="join"', told)
        assert re.search(r'ray_pxrs_lag_messages\{[^}]*partition="1"', told)
    finally:
        cluster.console.run("down", "measured", "--now")
