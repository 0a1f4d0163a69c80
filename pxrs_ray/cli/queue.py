"""`pxrs queue`: commands on whole queues."""

from __future__ import annotations

import typer

from pxrs_ray.cli._options import AsJson, PartitionsOption, QueueName, TopologyName
from pxrs_ray.cli._removal import Force, Yes, remove

app = typer.Typer(
    help="Commands on whole queues.", no_args_is_help=True, pretty_exceptions_enable=False
)


@app.callback()
def queue_() -> None:
    """Commands on whole queues."""


@app.command()
def delete(
    queue: QueueName,
    yes: Yes = False,
    force: Force = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Remove QUEUE with all its messages.

    With --force the groups that read it are removed too. A queue that holds the
    dead letters or the quarantine of another group always stays.
    """
    from pxrs_ray.cli._ray import steady

    found = steady(topology)
    removal = found.plan_queue_removal(queue)
    carry_out = lambda: found.delete_queue(queue, force=force)  # noqa: E731
    remove(removal, carry_out, yes=yes, force=force, as_json=as_json)


@app.command()
def purge(
    queue: QueueName,
    partition: PartitionsOption = None,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Drop the messages that QUEUE holds now. The queue, its offsets and its groups stay.

    Groups that have not passed them are never given them; it says which, and asks.
    """
    from pxrs_ray.actors.client.queue_purge import plan_purge
    from pxrs_ray.actors.client.queue_purge import purge as purge_now
    from pxrs_ray.cli._ray import steady

    found = steady(topology)
    removal, ends = plan_purge(found, queue, partition or ())
    carry_out = lambda: purge_now(found, queue, ends)  # noqa: E731
    remove(removal, carry_out, yes=yes, force=False, as_json=as_json)
