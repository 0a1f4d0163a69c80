"""Calls a user's own assignor, a function `module:function`, as the built-in ones are called.

Rules of this file. It runs in the coordinator, so nothing that it does may end a group. What it
raises, and an impossible answer, are reported as a trouble, and the group uses `sticky` until the
function answers again. It must be pure: it is called often, and an answer that changes by itself
would move partitions for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pxrs_ray.errors import UsageError
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from pxrs_ray.group.assignors import AssignmentProblem, TargetAssignment

TOLD_CHARS = 300

_supervisor = Supervisor("assignors")


def is_own(assignor: str) -> bool:
    """Whether this names a function, and not one of the built-in assignors."""
    return ":" in assignor


@cache
def _loaded(path: str) -> Callable[[AssignmentProblem], Any]:
    module, _, name = path.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{path} is no function")
    return found  # type: ignore[no-any-return]


def check_assignor(assignor: str) -> None:
    """Raise UsageError for one that cannot be imported here, where the coordinator runs."""
    if is_own(assignor):
        try:
            _loaded(assignor)
        except BaseException as error:  # noqa: BLE001 - an import may raise anything
            raise UsageError(
                f"assignor {assignor!r} is module:function, and can be imported where the "
                f"coordinator runs: {told(error, TOLD_CHARS)}"
            ) from None


def solve_by(assignor: str, problem: AssignmentProblem) -> TargetAssignment | None:
    """What the user's function answers; None, and a warning, where that is nothing to go by."""
    try:
        answer = {int(p): str(member) for p, member in dict(_loaded(assignor)(problem)).items()}
        members = {member.member for member in problem.members}
        for partition, member in answer.items():
            if not 0 <= partition < problem.partitions or member not in members:
                raise UsageError(f"it gives partition {partition} to {member!r}")
    except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
        text = f"{told(error, TOLD_CHARS)}: its group shares out as `sticky` does"
        _supervisor.trouble(assignor, text, for_good=True)
        return None
    _supervisor.over(assignor)
    return dict(sorted(answer.items()))
