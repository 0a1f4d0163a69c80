"""Guards of a coordinator's start, of its registry, and of the changes that are asked of it."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_WORLD = (
    "tests/simulation/test_starts.py::"
    "test_it_starts_when_its_trouble_is_over_and_callers_hear_the_truth"
)

_REGISTRY = (
    "tests/simulation/test_registry_calls.py::"
    "test_callers_hear_the_outcome_and_people_whether_it_is_there"
)


def _guard(guard: str, file: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change(f"supervision/{file}", text, instead),), tests=(_WORLD,))


def _calls(guard: str, text: str, instead: str) -> Mutation:
    changes = (Change("supervision/registry_calls.py", text, instead),)
    return Mutation(guard, changes, tests=(_REGISTRY,))


STARTING = (
    _guard(
        "one start at a time",
        "start_tries.py",
        "if self.done or self._runs or self._is_over:",
        "if self.done or self._is_over:",
    ),
    _guard(
        "what a try left is taken back before the next",
        "start_tries.py",
        "        tried, self._tried = self._tried, True\n",
        "        tried = False\n",
    ),
    _guard(
        "a start is tried again after ever longer pauses",
        "start_tries.py",
        "            return self._backoff.failed()\n        self._runs",
        "            return 0.05\n        self._runs",
    ),
    _guard(
        "who waits for the registry hears so within seconds",
        "changes_under_way.py",
        "return away_ms is not None and away_ms >= ANSWER_MS",
        "return False",
    ),
    _guard(
        "a change that is over is not named",
        "changes_under_way.py",
        "        self._under_way.pop(change, None)\n",
        "",
    ),
    _guard(
        "a change that waits is named",
        "changes_under_way.py",
        "        self._under_way[change] = what\n",
        "",
    ),
    _calls(
        "a call whose outcome is not known is made again",
        "        except StoreUnavailable:\n            yield from do(AwaitAnswer",
        "        except ZeroDivisionError:\n            yield from do(AwaitAnswer",
    ),
    _calls(
        "a registry that is away is called after ever longer pauses",
        "backoff = Backoff(PAUSE_FIRST_S, PAUSE_MOST_S)",
        "backoff = Backoff(PAUSE_FIRST_S, PAUSE_FIRST_S)",
    ),
    _calls(
        "a registry that nobody calls is looked at until it is back",
        "    while (yield from do(IsAway())):\n",
        "    while False:\n",
    ),
)
