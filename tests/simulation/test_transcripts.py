"""Every transcript in tests/transcripts says what happens today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.__main__ import main
from tests.transcripts.script import replay, transcripts


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_a_transcript_is_true(path: Path) -> None:
    text = path.read_text()
    assert replay(text) == text, "look at `python -m tests.transcripts --rewrite` and git diff"


def test_the_scenarios_that_must_be_told_are_there() -> None:
    told = {path.stem for path in transcripts()}
    assert told >= {
        "join",
        "leave",
        "crash",
        "zombie",
        "slow_revoke",
        "store_outage",
        "two_coordinators",
        "seek",
        "static_membership",
    }


def test_a_transcript_that_lies_is_noticed() -> None:
    text = next(path for path in transcripts() if path.stem == "zombie").read_text()
    assert replay(text.replace("UnknownMember", "Fenced")) == text


def test_the_command_tells_of_differences() -> None:
    assert main([]) == 0
