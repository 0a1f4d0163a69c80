"""Inner settings for tests: what the configuration says, and what a test says otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pxrs_ray.config import ByKey, GroupConfig, Packs, PxrsConfig, QueueConfig, limits
from pxrs_ray.config.options import ScalingConfig
from pxrs_ray.config.scheduling import lane_rules as lane_rules_of
from pxrs_ray.config.scheduling import pack_rules as pack_rules_of
from pxrs_ray.config.scheduling import pack_shape as pack_shape_of
from pxrs_ray.config.scheduling import retry_rules
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.processing.key_ordered import LaneRules
from pxrs_ray.processing.pack_rules import PackRules, ProcessingStrategy, SubmitStrategy
from pxrs_ray.processing.packs import PackShape
from pxrs_ray.processing.retry_rules import RetryRules
from pxrs_ray.producer.accumulator import ProducerLimits
from pxrs_ray.producer.in_flight import SenderLimits
from pxrs_ray.scaling import ScalerSettings

DECLARED = GroupConfig(queue="q", processing=ByKey())
PACKS = Packs()


def lane_rules(retry: RetryRules | None = None, **changes: Any) -> LaneRules:
    # Where nobody carries records to a log, there is none.
    wanted = {"retry": retry or retry_rules(DECLARED), "gap_log": False, **changes}
    return replace(lane_rules_of(DECLARED), **wanted)


def pack_rules(strategy: ProcessingStrategy, **changes: Any) -> PackRules:
    return replace(pack_rules_of(PACKS), strategy=strategy, **changes)


def pack_shape(submit: SubmitStrategy, *counts: int, **changes: Any) -> PackShape:
    told = dict(zip(("pack_records", "batch_records"), counts, strict=False))
    return replace(pack_shape_of(PACKS), submit=submit, **told, **changes)


def scaler_settings(**changes: Any) -> ScalerSettings:
    return replace(ScalingConfig().settings(), **changes)


def log_limits(**changes: Any) -> LogLimits:
    return replace(QueueConfig().log_limits(), **changes)


def sender_limits(**changes: Any) -> SenderLimits:
    return replace(limits.sender_limits(PxrsConfig()), **changes)


def producer_limits(**changes: Any) -> ProducerLimits:
    return replace(limits.producer_limits(PxrsConfig(), QueueConfig()), **changes)


def group_settings(**changes: Any) -> GroupSettings:
    return replace(limits.group_settings(DECLARED, "g"), **changes)
