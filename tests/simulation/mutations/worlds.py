"""Guards that the small worlds notice: who ends whom on a node, and who starts a coordinator."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_SMALL = "tests/simulation/test_small_worlds.py::"
_NODE = f"{_SMALL}test_who_stands_still_is_ended_in_time_and_nobody_else"
_LINKS = f"{_SMALL}test_calls_end_in_time_and_a_connection_that_is_over_is_made_anew"
_RECOVERY = f"{_SMALL}test_a_coordinator_that_is_gone_is_made_once_where_its_registry_is"


def _node(guard: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change("supervision/process_watch.py", text, instead),), tests=(_NODE,))


def _recovery(guard: str, text: str, instead: str) -> Mutation:
    changes = (Change("supervision/coordinator_watch.py", text, instead),)
    return Mutation(guard, changes, tests=(_RECOVERY,))


def _link(guard: str, file: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change(f"data/{file}", text, instead),), tests=(_LINKS,))


WORLDS = (
    _link(
        "a connection that is silent for too long is given up",
        "link_plan.py",
        "return Sign.GIVE_UP if silent_s >= 2 * SILENT_S else Sign.NONE",
        "return Sign.NONE",
    ),
    _link(
        "a connection that is over may be asked for again",
        "link_plan.py",
        '        """There is one, or it is being made."""\n        self._asking = False\n',
        '        """There is one, or it is being made."""\n',
    ),
    _link(
        "a buffer that gives no connection is asked again after a pause",
        "link_plan.py",
        "self._ask_at_s = now_s + ASK_AGAIN_S * spread",
        "self._ask_at_s = now_s",
    ),
    _link(
        "a call of a buffer that is away is made again",
        "call_tries.py",
        "if meaning_of(trouble) is not CallFailure.AWAY:",
        "if meaning_of(trouble):",
    ),
    _link(
        "a call that is made again ends at its deadline",
        "call_tries.py",
        "if now_s + pause_s > self._end_s:",
        "if False:",
    ),
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
        "return now_s - self._heard_s >= self._quiet_s",
        "return True",
    ),
    _recovery(
        "no coordinator is made before one has said of what",
        "if self._closed or not self._may_make:",
        "if self._closed:",
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
