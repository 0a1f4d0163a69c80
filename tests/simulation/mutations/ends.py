"""Guards of how far the logs are known to have come, in the registry."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_WORLD = (
    "tests/simulation/test_known_ends.py::"
    "test_what_was_in_the_logs_is_kept_in_time_and_never_goes_back"
)


def _guard(guard: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change("topology/kept_ends.py", text, instead),), tests=(_WORLD,))


ENDS = (
    _guard("known ends only rise", "max(known[partition], end)", "end"),
    _guard(
        "an end that moved far is kept soon",
        " or self._moved() >= FAR_OFFSETS",
        "",
    ),
    _guard(
        "an end that moved at all is kept in the end",
        "return now_ms - self._kept_ms >= KEEP_EVERY_MS or self",
        "return self",
    ),
    _guard(
        "a coordinator goes on from the ends that were kept",
        "                self.heard({queue_id: dict(enumerate(ends))})\n",
        "                pass\n",
    ),
    _guard(
        "an end counts as kept when it is in the registry",
        "        return KNOWN_ENDS.encode_text(self._saving)\n",
        "        self._kept = self._saving\n        return KNOWN_ENDS.encode_text(self._saving)\n",
    ),
)
