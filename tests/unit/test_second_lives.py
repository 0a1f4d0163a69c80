"""The fixture that lets every log live on sees what another life would lose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.log.partition_log import PartitionLog
from tests.logs import ALWAYS, MEMORY, SMALL, open_log, put
from tests.second_lives import SecondLives


@pytest.mark.parametrize("limits", [SMALL, ALWAYS, MEMORY], ids=["interval", "always", "memory"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Any, clean: bool
) -> None:
    lives = SecondLives(monkeypatch, tmp_path / "lives")
    log = open_log(tmp_path / "log", limits)
    for sequence in range(50):
        put(log, sequence)
    log.sync()
    if clean:
        log.close()
    assert lives.judge() == 1


def test_a_life_that_loses_something_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = SecondLives(monkeypatch, tmp_path / "lives")
    log = open_log(tmp_path / "log")
    put(log, 0)
    log.close()
    monkeypatch.setattr(PartitionLog, "groups", property(lambda _: {"lost": 1}))
    with pytest.raises(AssertionError):
        lives.judge()
