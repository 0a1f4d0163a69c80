"""Faults that a test arms: where a call goes wrong, when, how, and how often.

Rules of this file: a fault fires at the first calls that fit it, `times` times, and is gone. The
stand-in's other files ask `FaultPlan.take` at each point and obey what they are given.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Action = Literal["cut", "error", "late"]
Point = Literal["connect", "execute", "fetch", "commit", "rollback", "ping"]
When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that shall go wrong.

    * cut: the connection is reset before, or after, the call took effect; the client is told
      nothing, so that to it the two look the same
    * error: ORA-`code` is answered. `before`: the call has no effect. `after`: it has
    * late: the answer comes `seconds` late; `before` sleeps first and then acts. A server that
      hears a break meanwhile gives the call up (without effect, if it was still `before`); a
      `deaf` one goes on, and what it does may land long after the client has given up

    `commit` is also the commit that rides on an execute (autocommit). With `matching`, only
    statements that contain that text count (upper and lower case are one). The first `skip`
    fitting calls pass.
    """

    action: Action
    at: Point = "execute"
    when: When = "before"
    code: int = 0
    seconds: float = 0.0
    deaf: bool = False
    matching: str = ""
    skip: int = 0
    times: int = 1

    def __post_init__(self) -> None:
        if (self.action == "error") != (self.code > 0):
            raise ValueError("an 'error' fault needs the code of its ORA- error, others have none")
        if (self.action == "late") != (self.seconds > 0):
            raise ValueError("a 'late' fault needs its seconds, others have none")
        if self.at == "connect" and (self.action, self.when) not in (
            ("error", "before"),
            ("cut", "before"),
        ):
            raise ValueError("a connect can be refused ('error') or 'cut', before it happens")

    def to_json(self) -> dict[str, Any]:
        """As plain values, for the way into the server's process."""
        return asdict(self)


class FaultPlan:
    """The armed faults, in the order in which they were armed. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[Fault] = []
        self._fired = 0

    def arm(self, fault: Fault) -> None:
        """Add a fault."""
        with self._lock:
            self._armed.append(fault)

    def disarm(self) -> None:
        """Forget every fault that has not fired."""
        with self._lock:
            self._armed.clear()

    def fired(self) -> int:
        """How many times any fault has fired."""
        with self._lock:
            return self._fired

    def take(self, at: Point, when: When, sql: str = "") -> Fault | None:
        """The fault that shall happen here and now, if any; counts it as fired."""
        with self._lock:
            for index, fault in enumerate(self._armed):
                if (fault.at, fault.when) != (
                    at,
                    when,
                ) or fault.matching.lower() not in sql.lower():
                    continue
                if fault.skip:
                    self._armed[index] = replace(fault, skip=fault.skip - 1)
                    continue
                if fault.times > 1:
                    self._armed[index] = replace(fault, times=fault.times - 1)
                else:
                    del self._armed[index]
                self._fired += 1
                return fault
        return None
