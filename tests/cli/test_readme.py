"""The new user: every command of the README, in its order, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Cluster

pytestmark = pytest.mark.ray

BLOCKS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What makes the machine ready was done by the fixture, and `make` is what runs this test.
DONE_BEFORE = ("make ", "pip install ", "ray get-auth-token ", "ray start ")


def commands() -> list[str]:
    lines = "".join(BLOCKS.findall((ROOT / "README.md").read_text())).splitlines()
    told = [line.partition(" #")[0].strip() for line in lines]
    return [line for line in told if line and not line.startswith(DONE_BEFORE)]


def test_every_command_of_the_readme_works(cluster: Cluster, tmp_path: Path) -> None:
    lines = commands()
    exports = [line for line in lines if line.startswith("export ")]
    lines = [line for line in lines if line not in exports]
    assert lines[0].startswith("pxrs init") and lines[-1].startswith("pxrs down")
    for line in lines:
        ran = cluster.run("bash", "-c", "; ".join([*exports, line]), cwd=tmp_path)
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
