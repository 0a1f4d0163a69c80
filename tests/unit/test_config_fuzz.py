"""Whatever stands in a file, in the environment or in arguments: a configuration, or one error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.errors import ConfigError

EVERY = settings(
    max_examples=int(os.environ.get("PXRS_TEST_FUZZ_EXAMPLES", "80")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
NAMES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["q", "a.b", "x" * 500, "a/b", "..", "-", "a\nb", "\ud800", "registry.db"]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, 2**63, 2**64, -1, 0, 10**400]),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=5),
    st.sampled_from(["1 GiB", "5s", "memory:", "sqlite:", "redis://u:p@h/0", "a:b", "label"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def options_of(model: Any) -> st.SearchStrategy[dict[str, Any]]:
    names = st.one_of(st.sampled_from(sorted(model.model_fields)), NAMES)
    return st.dictionaries(names, VALUES, max_size=4)


TOPOLOGIES = st.fixed_dictionaries(
    {"name": st.just("shop") | NAMES},
    optional={
        "store": st.just("memory:") | VALUES,
        "queues": st.dictionaries(NAMES, options_of(QueueConfig), max_size=2) | VALUES,
        "groups": st.dictionaries(NAMES, options_of(GroupConfig), max_size=2) | VALUES,
        **dict.fromkeys(("num_partitions", "buffers", "linger_ms", "prefix", "key_prefix"), VALUES),
    },
)


@EVERY
@given(TOPOLOGIES)
def test_arguments_make_a_configuration_or_one_error(options: dict[str, Any]) -> None:
    try:
        config = PxrsConfig(**options)
    except ConfigError as refused:
        assert str(refused)
    else:
        assert config.fingerprint() and repr(config)
        assert config.diff(config) == ()


def toml_of(value: Any) -> str:
    """Roughly TOML, for the parser to refuse or not."""
    if isinstance(value, dict):
        pairs = (f"{toml_of(str(k))} = {toml_of(v)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


@EVERY
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode(errors="surrogatepass")),
        st.builds(
            lambda table: "\n".join(f"{k} = {toml_of(v)}" for k, v in table.items()).encode(
                errors="surrogatepass"
            ),
            TOPOLOGIES,
        ),
        st.sampled_from([b"a = " + b"[" * 20_000, b"[[" * 5_000, b"\xff\xfe", b"name = 'x'\x00"]),
        st.sampled_from([b"." * 60, b"a" + b" ." * 60 + b" x", b"n = " + b"9" * 5_000]),
    )
)
def test_a_file_is_a_configuration_or_one_error(tmp_path_factory: Any, data: bytes) -> None:
    path = Path(tmp_path_factory.getbasetemp()) / "fuzz.toml"
    path.write_bytes(data)
    try:
        PxrsConfig.from_toml(path)
    except ConfigError as refused:
        assert str(path) in str(refused) or "option" in str(refused) or str(refused)


VARIABLES = st.builds(
    lambda parts: "PXRS_" + "__".join(parts),
    st.lists(
        st.sampled_from(["QUEUES", "GROUPS", "Q", "NAME", "STORE", "PARTITIONS", "HANDLER"])
        | st.text(st.characters(codec="ascii", exclude_characters="=\x00"), max_size=8),
        min_size=1,
        max_size=4,
    ),
)
TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)


@EVERY
@given(st.dictionaries(VARIABLES, TEXTS | st.sampled_from(["[" * 5_000, "9" * 5_000]), max_size=3))
def test_variables_make_a_configuration_or_one_error(variables: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, text in variables.items():
            patch.setenv(name, text)
        try:
            PxrsConfig(name="shop", store="memory:", queues={"q": {"partitions": 2}})
        except ConfigError as refused:
            assert str(refused)
