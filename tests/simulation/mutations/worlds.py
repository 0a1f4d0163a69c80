"""Guards that the small worlds notice: who ends whom on a node, and who starts a coordinator."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_SMALL = "tests/simulation/test_small_worlds.py::"
_NODE = f"{_SMALL}test_who_stands_still_is_ended_in_time_and_nobody_else"
_RECOVERY = f"{_SMALL}test_a_coordinator_that_is_gone_is_made_once_where_its_registry_is"


def _node(guard: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change("supervision/node_watch.py", text, instead),), tests=(_NODE,))


def _recovery(guard: str, text: str, instead: str) -> Mutation:
    changes = (Change("supervision/coordinator_watch.py", text, instead),)
    return Mutation(guard, changes, tests=(_RECOVERY,))


WORLDS = (
    _node(
        "who stood still itself ends nobody by what it had counted",
        "self._gap_max_s = GAP_PAUSES * (self._every_s",
        "self._gap_max_s = 1_000 * (self._every_s",
    ),
    _node(
        "what was seen of a process in one round is known in the next",
        "self._judges.get(process) or FreezeDetector(",
        "FreezeDetector(",
    ),
    _recovery(
        "a coordinator that was heard lately is not replaced",
        "now_s - self._heard_s < self._quiet_s",
        "False",
    ),
    _recovery(
        "no coordinator is made before one has said of what",
        "or not self._may_make or",
        "or",
    ),
    _recovery(
        "a coordinator that runs after all gets no second one",
        "node is not None and not runs and",
        "node is not None and",
    ),
    _recovery(
        "nobody makes a coordinator after the shutdown",
        "not runs and not self._closed",
        "not runs",
    ),
    _recovery(
        "disks are looked at again when a node has come back",
        "        if self._looked_s is None or nodes != self._nodes:\n            return True\n"
        "        return now_s - self._looked_s >= AGAIN_S\n",
        "        return self._looked_s is None\n",
    ),
)
