"""Everything that is written and read again comes back as it was, types included."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pxrs_ray
from pxrs_ray.actors.coordinator.replicas_document import ReplicasDocument
from pxrs_ray.codec import CODECS, Codec, json_codec
from pxrs_ray.config.declare import Options
from pxrs_ray.processing.suspects import Suspect, Suspicion
from pxrs_ray.sink.applied import FULL_BITS, PAGE_OFFSETS, runs_of
from pxrs_ray.tenants.profile import TenantProfile
from pxrs_ray.tenants.tenant_document import KeptMove
from tests.persisted_logs import LOG_STRATEGIES
from tests.unit.configurations import WRITTEN

FACTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | _FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
# Where a type's own hints do not say what can stand in it (bounds, shapes, invariants).
STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "store: member attributes": st.tuples(_FINITE, st.integers(), st.lists(st.text()).map(tuple)),
    "consumer: death record": st.lists(st.integers(-(1 << 63), (1 << 63) - 1)).map(tuple),
    "topology: deployed": st.dictionaries(st.text(), _PLAIN, max_size=4),
    "topology: tenants": st.dictionaries(
        st.text(),
        st.builds(
            KeptMove,
            profile=st.builds(
                TenantProfile,
                partitions=st.integers(1),
                consumers=st.integers(0),
                weight=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
                resources=st.dictionaries(st.text(), _FINITE, max_size=3),
            ),
        ),
        max_size=3,
    ),
    "registry: replicas": st.builds(
        ReplicasDocument,
        incarnations=st.dictionaries(st.text(), st.integers(1), max_size=3),
        ray_options=st.dictionaries(st.text(), _PLAIN, max_size=3),
        members=st.dictionaries(st.text(), st.tuples(st.integers(1), st.text()), max_size=3),
    ),
    "sink: page": st.one_of(
        st.sets(st.integers(0, PAGE_OFFSETS - 1)).map(lambda found: sum(1 << at for at in found)),
        st.integers(0, FULL_BITS),
        st.just(FULL_BITS),
    ),
    # Ages are kept in tenths of a second, and suspects in the order of their offsets.
    "registry: suspects in a partition's row": st.builds(
        lambda found, redriven: Suspicion(
            tuple(
                Suspect(first, first + length, trouble, alone, age * 100, cause)
                for first, (length, trouble, alone, age, cause) in sorted(found.items())
            ),
            tuple(redriven),
        ),
        st.dictionaries(
            st.integers(0, 1 << 40),
            st.tuples(st.integers(1, 1 << 20), *[st.integers(0, 1 << 20)] * 4),
            max_size=9,
        ),
        st.lists(st.integers(0, 1 << 40), max_size=4),
    ),
    "spark: fact of a feed": st.dictionaries(st.text(), FACTS),
    "sink: full pages": st.sets(st.integers(0, 10_000)).map(
        lambda found: tuple(runs_of(sum(1 << at for at in found)))
    ),
}
STRATEGIES |= LOG_STRATEGIES
STRATEGIES["registry: config"] = WRITTEN
NOT_IMPORTED = ("pxrs_ray.__main__",)


def _import_all() -> None:
    for found in pkgutil.walk_packages(pxrs_ray.__path__, "pxrs_ray."):
        if found.name not in NOT_IMPORTED:
            importlib.import_module(found.name)


_import_all()


def typed(value: Any) -> Any:
    """`value` with the type of everything in it, so that a string never equals an enum."""
    if isinstance(value, dict):
        return {(type(k), k): typed(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [typed(v) for v in value]
    if isinstance(value, Options):
        # What was said itself counts too: what was not follows the topology.
        said = frozenset(value.model_fields_set)
        order = [
            list(v) for n in type(value).model_fields if isinstance(v := getattr(value, n), dict)
        ]
        found = {n: typed(getattr(value, n)) for n in type(value).model_fields}
        return type(value), said, found, order
    if hasattr(value, "__dataclass_fields__"):
        return type(value), {n: typed(getattr(value, n)) for n in value.__dataclass_fields__}
    return type(value), value


def strategy_of(codec: Codec[Any]) -> st.SearchStrategy[Any]:
    if codec.name in STRATEGIES:
        return STRATEGIES[codec.name]
    return st.from_type(codec.kind)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_what_comes_back_equals_what_went_in(name: str) -> None:
    codec = CODECS[name]

    @settings(max_examples=200, suppress_health_check=list(HealthCheck), deadline=None)
    @given(strategy_of(codec))
    def round_trip(value: Any) -> None:
        assert typed(codec.decode(codec.encode(value))) == typed(value)

    round_trip()


@pytest.mark.parametrize("name", sorted(CODECS))
def test_rubbish_is_refused_as_a_value_error(name: str) -> None:
    for rubbish in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null"):
        try:
            CODECS[name].decode(rubbish)
        except ValueError:
            pass


def test_one_name_one_codec() -> None:
    json_codec("tests: numbers", dict[int, int])
    with pytest.raises(ValueError, match="two codecs"):
        json_codec("tests: numbers", list[int])
    del CODECS["tests: numbers"]
