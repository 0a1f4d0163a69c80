"""`pxrs accept-loss`."""

from __future__ import annotations

from pxrs_ray.cli._options import AsJson, Partitions, QueueName, TopologyName


def command(
    queue: QueueName,
    partition: Partitions = None,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Let logs of QUEUE that stand still after a loss go on above the gap; it cannot be undone."""
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer, table

    found = running(topology)
    from pxrs_ray.actors.losses import accept_losses

    ends = accept_losses(found, queue, partition or ())
    rows = [(f"P{p}", end.state, end.start_offset, end.end_offset) for p, end in ends.items()]
    answer(ends, as_json, lambda: table(("partition", "state", "begins", "ends"), rows))
