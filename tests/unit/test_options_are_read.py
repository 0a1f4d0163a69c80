"""Each option that is declared is read by code that does something with it; nothing is said twice.

Read means: taken as an attribute of a configuration, outside of what only checks configurations.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from pxrs_ray.config import ByKey, GroupConfig, Ordered, Packs, PxrsConfig, QueueConfig
from pxrs_ray.config.declare import Options
from pxrs_ray.config.options import ScalingConfig
from pxrs_ray.data.log_limits import Durability, LogLimits, LossPolicy
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.partitioning import HASHES, STRATEGIES
from pxrs_ray.processing.key_ordered import LaneRules
from pxrs_ray.processing.pack_rules import PackRules
from pxrs_ray.processing.packs import PackShape
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.producer.accumulator import ProducerLimits
from pxrs_ray.producer.in_flight import SenderLimits
from pxrs_ray.scaling import ScalerSettings

ROOT = Path(__file__).resolve().parents[2]
# `pxrs_ray.actors` and `pxrs_ray.spark` are links into folders that are looked at anyway.
LINKS = (("pxrs_ray", "actors"), ("pxrs_ray", "spark"))
MODES: tuple[type[Options], ...] = (Ordered, ByKey, Packs)
KINDS = (PxrsConfig, QueueConfig, GroupConfig, ScalingConfig, *MODES)

# What a configuration is called where it is read; `self` is one in its own methods.
_CONFIGURATION = re.compile(
    r"(^|_)(config|declared|group|queue|wanted|topology|settings|mode|processing)$"
)
_ONLY_CHECKS = re.compile(r"^_fits_together$|^_is_a_range$|_problems$|^__")


def product() -> Iterator[Path]:
    for folder in ("pxrs_ray", "actors", "spark"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            where = file.relative_to(ROOT).parts
            if "testing" not in where and where[:2] not in LINKS:
                yield file


def reads(text: str, *, of_self: bool) -> set[str]:
    """The options that this source reads; `of_self` where `self` may be a configuration."""
    found = set()
    called: set[ast.AST] = set()  # `group.start(...)` is a method, and no option
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) and of_self and _ONLY_CHECKS.search(node.name):
            continue
        if isinstance(node, ast.Call):
            called.add(node.func)
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and node not in called
        ):
            owner = node.value
            name = getattr(owner, "attr", "") or getattr(owner, "id", "")
            if _CONFIGURATION.search(name) or (of_self and name == "self"):
                found.add(node.attr)
        waiting.extend(ast.iter_child_nodes(node))
    return found


def unread(options: Iterable[str], sources: Iterable[tuple[str, bool]]) -> set[str]:
    """Those of the options that none of the sources reads."""
    read = set()
    for text, of_self in sources:
        read |= reads(text, of_self=of_self)
    return set(options) - read


def test_each_option_is_read_by_product_code() -> None:
    options = {name for kind in KINDS for name in kind.model_fields}
    sources = [(file.read_text(), file.parent.name == "config") for file in product()]
    assert len(options) > 80 and len(sources) > 200
    assert unread(options, sources) == set()


@pytest.mark.parametrize(
    "source",
    [
        "class Config:\n    lonely: int = option(1, 'Nobody reads it.')",
        "def _fits_together(self):\n    return self.lonely > 0",
        "def f(config):\n    config.lonely = 3",
        "def f(other):\n    return other.lonely",
        "def f(group):\n    return group.lonely()",
    ],
)
def test_an_option_that_is_only_declared_checked_or_set_is_found(source: str) -> None:
    assert unread(["lonely"], [(source, True)]) == {"lonely"}
    assert unread(["lonely"], [(source, True), ("config.lonely", False)]) == set()


INNER = (
    GroupSettings,
    LaneRules,
    LogLimits,
    PackRules,
    PackShape,
    ProducerLimits,
    RetryRules,
    ScalerSettings,
    SenderLimits,
)
# What no option says: bounds of the code's own, and what is true of a moment.
OF_NO_OPTION = {
    ("GroupSettings", "paused"),
    ("LaneRules", "detail_chars"),
    ("LaneRules", "window"),
    ("LogLimits", "index_interval_bytes"),
    ("LogLimits", "producer_idle_ms"),
    ("LogLimits", "producers_max"),
    ("ProducerLimits", "block_ms"),
    ("ProducerLimits", "chunk_bytes_max"),
    ("ProducerLimits", "chunk_records_max"),
    ("ProducerLimits", "compression"),
    ("ProducerLimits", "pending_bytes_max"),
    ("SenderLimits", "call_bytes_max"),
    ("SenderLimits", "call_bytes_min"),
    ("SenderLimits", "call_frames_max"),
    ("SenderLimits", "partition_frames_max"),
}


def test_what_is_made_of_the_configuration_has_no_default_beside_it() -> None:
    own = {
        (kind.__name__, each.name)
        for kind in INNER
        for each in fields(kind)
        if each.default is not MISSING or each.default_factory is not MISSING
    }
    assert own == OF_NO_OPTION
    options = {name for kind in KINDS for name in kind.model_fields}
    assert not options & {name for _, name in own}


def test_the_values_of_an_option_are_those_of_its_enum() -> None:
    schema = PxrsConfig.model_json_schema()["$defs"]
    queue, group = schema["QueueConfig"]["properties"], schema["GroupConfig"]["properties"]
    assert queue["strategy"]["enum"] == list(STRATEGIES)
    assert queue["hash"]["enum"] == list(HASHES)
    assert queue["durability"]["enum"] == list(Durability)
    assert queue["lost_log_policy"]["enum"] == list(LossPolicy)
    assert group["failure_policy"]["enum"] == list(FailurePolicy)
