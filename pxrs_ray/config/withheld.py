"""Adds to a new configuration the running queues and groups that it does not name, or leaves some
out."""

from __future__ import annotations

from typing import Any

from pxrs_ray.config.sources import given
from pxrs_ray.config.topology import PxrsConfig


def with_what_stays(wanted: PxrsConfig, now: PxrsConfig) -> PxrsConfig:
    """`wanted` with every group and queue that runs, and that it does not name: those stay."""
    groups = {n: given(one) for n, one in now.groups.items() if n not in wanted.groups}
    queues = {
        name: {field: getattr(one, field) for field in type(one).model_fields}
        for name, one in now.queues.items()
        if name not in wanted.queues
    }
    return wanted.changed(groups=groups, queues=queues) if groups or queues else wanted


def without(config: PxrsConfig, groups: tuple[str, ...], queues: tuple[str, ...]) -> PxrsConfig:
    """The configuration without these; everything else stays as it is, resolved."""
    left: dict[str, Any] = {
        "groups": {name: one for name, one in config.groups.items() if name not in groups},
        "queues": {name: one for name, one in config.queues.items() if name not in queues},
    }
    return config.model_copy(update=left)
