"""`pxrs lag`: shows how far groups are behind."""

from __future__ import annotations

from pxrs_ray.cli._options import AsJson, MaybeGroup, TopologyName


def command(
    group: MaybeGroup = None, topology: TopologyName = None, as_json: AsJson = False
) -> None:
    """Show how far each group is behind, in messages and in time, and its worst partition."""
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.rendering import Table
    from pxrs_ray.status.units import span_text

    found = running(topology)
    groups = [found.group(group).status()] if group else list(found.status().groups)
    told, rows = [], []
    for status in groups:
        worst = max(status.partitions, key=lambda p: p.lag or 0)
        told.append(
            {
                "group": status.group,
                "lag": status.lag,
                "lag_ms": status.lag_ms,
                "worst_partition": worst.partition if worst.lag else None,
                "worst_lag": worst.lag or 0,
            }
        )
        shown = f"P{worst.partition}: {worst.lag:,}" if worst.lag else "-"
        rows.append((status.group, status.lag, span_text(status.lag_ms), shown))
    answer(told, as_json, lambda: Table(("group", "lag", "behind", "worst partition"), rows))
