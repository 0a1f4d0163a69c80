"""The Spark examples run as they stand, but for the session: it is the tests' own, to save time."""

from __future__ import annotations

import runpy
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import pxrs_ray.spark

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("spark_feed.py", "50000 messages in the queue, 0 on a wrong partition"),
        ("spark_stream.py", "3000 messages in the queue"),
    ],
)
def test_spark_example(
    spark: Any,
    name: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        pxrs_ray.spark, "spark_on_ray", lambda *_, **__: nullcontext(spark), raising=False
    )
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert said in capsys.readouterr().out
