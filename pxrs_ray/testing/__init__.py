"""What proves PXRS, and what its users test with: `TestTopology`, the contract suite of stores.

    from pxrs_ray.testing import TestTopology

Rule of this file: names are loaded when they are first used, for the parts have little in common.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pxrs_ray.testing.local.group import Delivered as Delivered
    from pxrs_ray.testing.local.local_topology import TestTopology as TestTopology

_HOMES = {
    "Delivered": "pxrs_ray.testing.local.group",
    "TestTopology": "pxrs_ray.testing.local.local_topology",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pxrs_ray.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
