"""`python -m tests.transcripts [--rewrite]`: tell which transcripts differ, or make them agree.

Commit a rewritten transcript only if you understand what caused the change.
"""

from __future__ import annotations

import sys

from tests.transcripts.script import replay, transcripts


def main(arguments: list[str]) -> int:
    """Answers the exit status: 1 when a transcript differs and was not rewritten."""
    differing = 0
    for path in transcripts():
        text = path.read_text()
        now = replay(text)
        if now == text:
            continue
        print(f"{path.name} differs")
        if "--rewrite" in arguments:
            path.write_text(now)
        else:
            differing += 1
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
