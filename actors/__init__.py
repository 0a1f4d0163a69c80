"""The Ray shell of PXRS: thin actors around the core. Import it as `pxrs_ray.actors`."""

from __future__ import annotations
