"""The Spark feed of PXRS, through RayDP. Import it as `pxrs_ray.spark`."""

from __future__ import annotations
