"""Guards of a group's consumers: who is replaced, how often, and what outlives a coordinator."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_WORLD = "tests/simulation/test_consumers.py::test_who_is_wanted_works_in_the_end_and_nobody_else"


def _guard(guard: str, file: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change(f"group/{file}", text, instead),), tests=(_WORLD,))


SUPERVISING = (
    _guard(
        "a consumer is replaced by one at a time",
        "replica_lives.py",
        "        self._room.call_off(life)\n        while",
        "        while",
    ),
    _guard(
        "who dies at once is replaced ever later",
        "replica_lives.py",
        "        if life.quick_deaths:\n",
        "        if False:\n",
    ),
    _guard(
        "a member that is silent has another lease to thaw",
        "replica_lives.py",
        "        yield from do(LetTimePass(self._room.lease_s))\n",
        "        yield from do(LetTimePass(0.0))\n",
    ),
    _guard(
        "who stands still is killed after that",
        "replica_lives.py",
        'if life.state == "silent" and life.incarnation == incarnation:',
        "if False:",
    ),
    _guard(
        "who is heard again is spared",
        "replica_lives.py",
        'if life.state == "silent" and life.incarnation == incarnation:',
        "if True:",
    ),
    _guard(
        "who was replaced may not come back",
        "replica_lives.py",
        'if life.actor != actor or life.state not in ("running", "silent"):',
        "if False:",
    ),
    _guard(
        "who came up after the others joins by itself",
        "replica_lives.py",
        "        return not self._closed\n\n    def close",
        "        return True\n\n    def close",
    ),
    _guard(
        "what could not be kept is kept later",
        "replica_count.py",
        '        """It may not be kept."""\n        self.is_stale = True\n',
        '        """It may not be kept."""\n',
    ),
    _guard(
        "a consumer goes on where what was done for it has failed",
        "replica_lives.py",
        "        if not self.is_wanted(life) or self.stopping:\n            return\n",
        "        if self.wanted:\n            return\n",
    ),
    _guard(
        "a consumer that begins is offered the newest configuration",
        "replica_lives.py",
        "                self._room.beside(life, self._renewed(life))\n",
        "                pass\n",
    ),
    _guard(
        "who can have a configuration only anew is replaced as it begins",
        "replica_lives.py",
        "            if offered is Offered.REFUSED:\n",
        "            if offered is Offered.GONE:\n",
    ),
    _guard(
        "who waits for a place is made anew with what it is to ask for now",
        "replica_lives.py",
        "                if not (yield from do(HasNewest(life))):\n",
        "                if False:\n",
    ),
    _guard(
        "who does not answer to a configuration is replaced",
        "taking_over.py",
        "return offered in (Offered.TAKEN, Offered.GONE)",
        "return True",
    ),
)
