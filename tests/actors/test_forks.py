"""A handler may fork, use multiprocessing and subprocess: its children end as their owner wants."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.actors.forking import SEEN, WAYS


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
@pytest.mark.parametrize("way", WAYS)
def test_children_of_a_handler_end_and_take_nothing_with_them(way: str) -> None:
    command = [sys.executable, "-m", "tests.actors.forking", way]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = ran.stdout.splitlines()
    assert lines == [*(f"{name}: {seen}" for name, seen in SEEN.items()), "gave up: []", "told"], (
        ran.stdout + ran.stderr
    )
    assert ran.returncode == 0
