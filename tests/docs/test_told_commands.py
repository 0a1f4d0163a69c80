"""Every `pxrs` command that a text tells people to type is one that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.commands import EVERY
from tests.docs.reference import DOCS

ROOT = DOCS.parent
IN_LINE = re.compile(r"`pxrs ([a-z][^`\n]*)`")
IN_BLOCK = re.compile(r"^(?:ray job submit .* -- )?pxrs ([a-z][^#\n]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
TEXTS = [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("ops/*.yml")]
# What the program itself says: help, errors, remedies.
SOURCES = [path for top in ("pxrs_ray", "actors", "spark") for path in (ROOT / top).rglob("*.py")]


def told(path: Path) -> list[str]:
    """The commands in a text, without `pxrs`."""
    text = path.read_text()
    return [*IN_LINE.findall(text), *(IN_BLOCK.findall(text) if path.suffix == ".md" else ())]


def wrong(line: str) -> str:
    """What is wrong with a command; empty when nothing is."""
    words = line.split()
    named = [c for c in EVERY if tuple(words[: len(c.words)]) == c.words]
    if not named:
        group = any(c.words[0] == words[0] for c in EVERY) and len(words) == 1
        return "" if group else f"there is no `pxrs {line}`"
    unknown = set(OPTION.findall(line)) - named[0].options
    return f"`pxrs {line}`: no {', '.join(sorted(unknown))}" if unknown else ""


@pytest.mark.parametrize("paths", [TEXTS, SOURCES], ids=["the documentation", "the program itself"])
def test_every_command_that_is_told_exists(paths: list[Path]) -> None:
    lines = {line: path for path in paths for line in told(path)}
    assert len(lines) > 20
    assert [f"{path.name}: {wrong(line)}" for line, path in lines.items() if wrong(line)] == []


def test_what_is_wrong_is_seen() -> None:
    assert "no `pxrs stat" in wrong("stats")
    assert "--all" in wrong("status --all") and wrong("status billing --json") == ""
    assert wrong("quarantine") == "" and "no `pxrs quarantine drop" in wrong("quarantine drop")
