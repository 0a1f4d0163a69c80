"""One process that runs `pxrs` commands one after another: joining Ray for each would cost seconds.

As a program it reads a JSON list of arguments a line, and answers status, stdout and stderr.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any


class Console:
    """A user's terminal in a cluster."""

    def __init__(self, python: Path, variables: dict[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            [python, __file__],
            env=variables,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run one command: exit status, stdout, stderr."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        status, out, err = json.loads(self._process.stdout.readline())
        return status, out, err

    def told(self, *arguments: str) -> Any:
        """What a command that must succeed answers in JSON."""
        return json.loads(self.shown(*arguments, "--json"))

    def shown(self, *arguments: str) -> str:
        """What a command that must succeed prints."""
        status, out, err = self.run(*arguments)
        assert status == 0, out + err
        return out

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def main() -> None:
    """Run what comes on stdin."""
    from pxrs_ray.cli.root import run

    answers = sys.stdout
    for line in sys.stdin:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = run(json.loads(line))
        print(json.dumps([status, out.getvalue(), err.getvalue()]), file=answers, flush=True)


if __name__ == "__main__":
    main()
