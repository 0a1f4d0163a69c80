"""`pxrs bench`: measures the speed of this cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson


def command(
    messages: Annotated[int, typer.Option("--messages", "-n", min=1_000)] = 1_000_000,
    payload_bytes: Annotated[
        int, typer.Option("--bytes", min=0, help="Size of each payload in bytes.")
    ] = 100,
    partitions: Annotated[int, typer.Option(min=1)] = 16,
    consumers: Annotated[int, typer.Option(min=1)] = 2,
    as_json: AsJson = False,
) -> None:
    """Measure rate and latency of this cluster, with a topology that is removed afterwards."""
    import tempfile

    from pxrs_ray.cli._ray import connect
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.rendering import Table

    connect()
    from pxrs_ray.actors.client.cluster_benchmark import run_trial

    with tempfile.TemporaryDirectory(prefix="pxrs-bench-") as folder:
        found = run_trial(messages, payload_bytes, partitions, consumers, Path(folder))
    rows = [
        ("produced", f"{found.produce_per_s:,.0f} messages/s"),
        ("end to end", f"{found.end_to_end_per_s:,.0f} messages/s"),
        ("latency of single messages", f"p50 {found.latency_p50_ms:.2f} ms"),
        ("", f"p99 {found.latency_p99_ms:.2f} ms"),
    ]
    answer(found, as_json, lambda: Table(("what", "figure"), rows))
