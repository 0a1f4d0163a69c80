"""The parts of the store contract suite by subject; `pxrs_ray.testing.store_contract` runs them."""

from __future__ import annotations
