"""Whether the consumers that were to start have started. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pxrs_ray.errors import HandlerError
from pxrs_ray.status.answers import GroupStatus

COMING = ("starting", "pending")


def not_started(groups: Iterable[GroupStatus], names: Collection[str]) -> list[str]:
    """The consumers of these groups (full names) that still start, a line each.

    Raises HandlerError with the reason where one cannot start.
    """
    late = []
    for group in groups:
        if group.group not in names:
            continue
        for consumer in group.consumers:
            if consumer.state == "failed":
                raise HandlerError(f"consumer {consumer.member} cannot start: {consumer.reason}")
            if consumer.state in COMING:
                reason = f": {consumer.reason}" if consumer.reason else ""
                late.append(f"group {group.group}: {consumer.member} is {consumer.state}{reason}")
    return late
