"""What a group's lag says where a buffer does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.client import group as module
from pxrs_ray.actors.client.group import Group
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.status.problem import Kind, Report

AWAY = Report(Kind.BUFFER_AWAY, "buffer 1 does not answer for P1, P3", 1)


class Answers(Group):
    """A group whose status is given, one answer after the other, the last one for ever."""

    def __init__(self, *answers: tuple[int, tuple[Report, ...]]) -> None:
        self.name = "billing"
        self._left = list(answers)

    def status(self) -> Any:
        lag, unknown = self._left[0] if len(self._left) == 1 else self._left.pop(0)
        return SimpleNamespace(lag=lag, unknown=unknown)


def test_a_buffer_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAG_LOOK_S", 0.001)
    assert Answers((0, (AWAY,)), (0, (AWAY,)), (130, ())).lag() == 130


def test_a_lag_that_stays_unknown_is_an_error_and_never_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAG_WAIT_S", 0.01)
    monkeypatch.setattr(module, "LAG_LOOK_S", 0.001)
    with pytest.raises(DeadlineExceeded, match="lag of billing is not known: buffer 1 does not"):
        Answers((0, (AWAY,))).lag()
