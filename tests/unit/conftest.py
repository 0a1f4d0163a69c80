"""Unit tests are about pure code: a test that starts Ray here is in the wrong folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tests.second_lives import second_lives as second_lives

WITH_LOGS = ("test_partition_log", "test_log_", "test_sender", "test_producer", "test_clock")


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make `ray.init` raise, where a test (or what it calls) has loaded Ray at all."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a unit test called ray.init: move it to tests/actors")

    ray = sys.modules.get("ray")
    if ray is not None:
        monkeypatch.setattr(ray, "init", refuse)
    yield
    if ray is None and "ray" in sys.modules:
        assert not sys.modules["ray"].is_initialized(), "a unit test started Ray"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the developer's own PXRS_ variables: they are options of every topology."""
    for name in [name for name in os.environ if name.startswith("PXRS_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def logs_live_on(request: pytest.FixtureRequest) -> None:
    """Every scenario of the logs goes on in further lives."""
    if request.path.stem.startswith(WITH_LOGS):
        request.getfixturevalue("second_lives")
