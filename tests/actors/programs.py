"""Tests that want a Ray of their own are programs: they are run, and tell a line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.light_ray import python_path

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 480


def told_by(module: str) -> dict[str, Any]:
    """Run `tests.actors.<module>`, which must succeed; answers what its last line tells."""
    ran = subprocess.run(
        [sys.executable, "-m", f"tests.actors.{module}"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-4_000:]}"
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told
