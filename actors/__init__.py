"""The Ray half of PXRS: actors and clients around the pure core. Import it as `pxrs_ray.actors`."""

from __future__ import annotations
