"""The notebook of examples/ runs from its first to its last cell, and shows what it promises."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.status.lag_plot import LagPlot, watch
from tests.docs.reference import DOCS

EXAMPLES = DOCS.parent / "examples"


class Falling:
    name = "billing"

    def __init__(self) -> None:
        self.left = 4

    def lag(self) -> int:
        self.left -= 1
        return self.left


def test_the_plot_is_a_line_from_the_lags() -> None:
    plot = watch(Falling(), seconds=0.02, interval_s=0.02)
    assert [lag for _, lag in plot.points] == [3, 2]
    shown = plot._repr_html_()
    assert "<polyline" in shown and "lag, up to 3" in shown
    assert repr(plot) == "LagPlot('billing', 2 points, lag 3 to 2)"
    assert LagPlot("g", ((0.0, 0),))._repr_html_()


@pytest.fixture
def running_payments(tmp_path: Path) -> Iterator[None]:
    import ray

    import pxrs_ray

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    config = pxrs_ray.PxrsConfig.from_toml(
        EXAMPLES / "payments.toml", data_dir=tmp_path, store="memory:"
    )
    topology = pxrs_ray.deploy(config)
    topology.group("billing").start("examples.payments:charge", consumers=2)
    yield
    topology.shutdown()
    ray.shutdown()


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: its last expression is what it shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - our own notebook
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307


@pytest.mark.ray
def test_the_notebook_runs(running_payments: None) -> None:
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    names: dict[str, Any] = {}
    shown = [
        run_cell("".join(cell["source"]), names)
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    tables = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(tables) >= 4 and all("<table" in t or "<svg" in t for t in tables)
    assert any("color: seagreen" in t or "color: darkorange" in t for t in tables)
    assert sum(range(1_000)) in shown, "the pull consumer got every message"
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"])
