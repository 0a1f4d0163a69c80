"""Guards of what is put aside: an append whose answer was lost."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

SETTING_ASIDE = (
    Mutation(
        "who looks at a quarantine whose log was dropped hears that nothing waits",
        (
            Change(
                "processing/quarantine_state.py",
                "        if to <= self.next_position:\n",
                "        if True:\n",
            ),
        ),
        tests=("tests/unit/test_quarantine_appends.py",),
    ),
    Mutation(
        "what was not answered is sent again as it was",
        (
            Change(
                "processing/numbered_appends.py",
                "                if not passes(error):\n",
                "                if True:\n",
            ),
        ),
        tests=("tests/simulation/test_quarantine.py",),
    ),
    Mutation(
        "what was refused for good is in nobody's way",
        (
            Change(
                "processing/numbered_appends.py",
                "                if not passes(error):\n",
                "                if False:\n",
            ),
        ),
        tests=("tests/unit/test_quarantine_appends.py",),
    ),
    Mutation(
        "records of gaps that a full disk refuses do not gather",
        (
            Change(
                "processing/numbered_appends.py",
                "        while len(self._waiting) > self._was_sent:\n",
                "        while False:\n",
            ),
        ),
        tests=("tests/simulation/test_gaps.py",),
    ),
    Mutation(
        "what the log may have is not replaced",
        (
            Change(
                "processing/numbered_appends.py",
                "        while len(self._waiting) > self._was_sent:\n",
                "        while self._waiting:\n",
            ),
        ),
        tests=("tests/simulation/test_gaps.py",),
    ),
)
