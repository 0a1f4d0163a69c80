"""Logs as JSON lines: quiet by default, every change of ownership when asked."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from pxrs_ray import json_logging
from pxrs_ray.model import Member, MemberWrite, Write, WriteKind

RECORDS = (
    Write(WriteKind.CLAIM, 3, "a", 2, 6, 40, version=9, cause="join of a#2"),
    MemberWrite("left", Member("b", 1), 10, 10, "its process died"),
    Write(WriteKind.COMMIT, 3, "a", 2, 7, 41),
)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger(json_logging.ROOT)
    before = root.level, root.propagate, list(root.handlers)
    yield
    root.setLevel(before[0])
    root.propagate, root.handlers = before[1], before[2]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_quiet_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    json_logging.start_journal(topology="shop")
    json_logging.tell_changes("billing", RECORDS)
    assert lines(capsys) == []
    logging.getLogger("pxrs_ray.actors.coordinator.consumer_supervisor").warning(
        "%s died", "billing-0"
    )
    (line,) = lines(capsys)
    assert line["topology"] == "shop" and line["event"] == "billing-0 died"


def test_every_change_of_ownership_with_its_cause(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(json_logging.LEVEL_VARIABLE, "INFO")
    json_logging.start_journal(topology="shop")
    json_logging.tell_changes("billing", RECORDS)
    claim, left = lines(capsys)
    assert claim["event"] == "claim" and claim["cause"] == "join of a#2"
    assert (claim["group"], claim["partition"], claim["epoch"]) == ("billing", 3, 6)
    assert left["event"] == "member left" and left["member"] == "b"


def test_an_error_carries_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    json_logging.start_journal(topology="shop")
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("pxrs_ray.x").exception("failed")
    (line,) = lines(capsys)
    assert "ValueError: odd" in str(line["trace"])
