"""The bench harness tells what was measured: medians, several figures a run, failures."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.benchmarks import harness
from tests.benchmarks.harness import figure, figures, measure


@pytest.fixture(autouse=True)
def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "BENCHES", [])


def told() -> tuple[int, list[dict[str, object]], str]:
    json_out, table_out = io.StringIO(), io.StringIO()
    failed = measure(harness.BENCHES, json_out, table_out)
    return (
        failed,
        [json.loads(line) for line in json_out.getvalue().splitlines()],
        table_out.getvalue(),
    )


def test_one_line_a_figure_with_the_median_and_without_the_warmup() -> None:
    values = iter([99.0, 3.0, 1.0, 2.0])

    @figure("core.thing_ms", unit="ms", runs=3, warmups=1)
    def thing() -> float:
        return next(values)

    failed, lines, table = told()
    assert failed == 0
    assert lines == [
        {"figure": "core.thing_ms", "median": 2.0, "unit": "ms", "runs": [3.0, 1.0, 2.0]}
    ]
    assert "core.thing_ms" in table and "1 to 3 (100 %, 3 runs)" in table


def test_several_figures_share_runs_and_setups() -> None:
    opened: list[str] = []

    @contextmanager
    def cluster() -> Iterator[str]:
        opened.append("open")
        yield "address"
        opened.append("closed")

    @figures({"ray.a": "s", "ray.b": "s"}, runs=1, warmups=0, setup=cluster)
    def both(address: str) -> dict[str, float]:
        assert address == "address"
        return {"ray.a": 1.0, "ray.b": 2.0}

    @figure("ray.c", unit="s", runs=1, warmups=0, setup=cluster)
    def third(address: str) -> float:
        return 3.0

    failed, lines, _ = told()
    assert failed == 0
    assert [line["figure"] for line in lines] == ["ray.a", "ray.b", "ray.c"]
    assert opened == ["open", "closed"]


def test_a_failing_bench_is_counted_and_does_not_stop_the_others() -> None:
    @figure("core.broken", unit="s", runs=1)
    def broken() -> float:
        raise ValueError("out of luck")

    @figures({"core.forgotten": "s"}, runs=1)
    def forgetful() -> dict[str, float]:
        return {}

    @figure("core.sound", unit="s", runs=1)
    def sound() -> float:
        return 1.0

    failed, lines, table = told()
    assert failed == 2
    assert [line["figure"] for line in lines] == ["core.sound"]
    assert "FAILED core.broken" in table and "out of luck" in table


def test_an_unknown_name_is_refused_with_the_known_groups() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "nonsense"], capture_output=True, text=True
    )
    assert ran.returncode == 2 and ran.stdout == ""
    assert "no such figure or group: nonsense" in ran.stderr and "core" in ran.stderr
