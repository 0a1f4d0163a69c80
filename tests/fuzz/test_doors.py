"""Whatever is given at a door: an answer or a refusal, soon; never a crash, a hang, a traceback.

`python -m tests.fuzz --minutes 60` does the same for an hour, with another seed each time.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fuzz.doors import doors
from tests.fuzz.knocking import Door, knock

CALLS = 300
DOORS = doors()


@pytest.mark.parametrize("number", range(len(DOORS)), ids=lambda number: DOORS[number].name)
def test_rubbish_is_answered_or_refused(number: int) -> None:
    door = DOORS[number]
    found = list(knock(door, random.Random(number), max(len(door.samples), CALLS // door.costly)))
    assert found == []


def test_a_finding_is_told() -> None:
    @contextmanager
    def opened() -> Iterator[Any]:
        yield lambda data: 1 // len(data)

    assert [f.error for f in knock(Door("d", opened, (b"", b"a")), random.Random(1), 2)] == [
        "ZeroDivisionError: integer division or modulo by zero"
    ]


def test_rubbish_that_crashes_is_refused() -> None:
    """What would end the interpreter is tried in a process of its own."""
    code = (
        "import random\n"
        "from tests.fuzz.doors import doors\n"
        "from tests.fuzz.knocking import knock\n"
        'door = next(door for door in doors() if door.name == "a frame\'s body")\n'
        "assert not list(knock(door, random.Random(1), 3_000))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2_000:]
