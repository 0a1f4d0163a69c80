"""A transcript: blocks of comments, a command, a line of dashes, and what came of the command."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.transcripts.stage import Stage

RULE = "----"


def replay(text: str) -> str:
    """The same transcript with the output that its commands have now."""
    told = []
    with closing(Stage()) as stage:
        for block in text.strip().split("\n\n"):
            head = block.split(f"\n{RULE}")[0]
            command = head.splitlines()[-1]
            told.append("\n".join([head, RULE, *stage.do(command)]))
    return "\n\n".join(told) + "\n"


def transcripts() -> list[Path]:
    """Every transcript."""
    return sorted(Path(__file__).parent.glob("*.txt"))
