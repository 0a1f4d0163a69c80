"""How many consumers a group should have: a pure function of observations and the time."""

from __future__ import annotations

from pxrs_ray.scaling.observation import Advice as Advice
from pxrs_ray.scaling.observation import Observation as Observation
from pxrs_ray.scaling.observation import PartitionLoad as PartitionLoad
from pxrs_ray.scaling.observation import ScalerSettings as ScalerSettings
from pxrs_ray.scaling.scaler import Scaler as Scaler

__all__ = ["Advice", "Observation", "PartitionLoad", "Scaler", "ScalerSettings"]
