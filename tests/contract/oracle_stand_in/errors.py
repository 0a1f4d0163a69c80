"""The database's errors, and which of them an error of the two engines stands for.

Rules of this file: the client sees only ORA- numbers that a real server would give for the same
mistake. What no rule knows is ORA-00900 (invalid SQL statement) with the engine's own words, so
that a test's author can see what went wrong.
"""

from __future__ import annotations

_BY_STATE = {
    "22001": (12899, "value too large for column"),
    "22003": (1438, "value larger than specified precision allowed for this column"),
    "22007": (1858, "a non-numeric character was found where a numeric was expected"),
    "22012": (1476, "divisor is equal to zero"),
    "22018": (1722, "invalid number"),
    "23502": (1400, "cannot insert NULL"),
    "23503": (2291, "integrity constraint violated - parent key not found"),
    "23504": (2292, "integrity constraint violated - child record found"),
    "23505": (1, "unique constraint violated"),
    "23513": (2290, "check constraint violated"),
    "40001": (60, "deadlock detected while waiting for resource"),
    "42501": (942, "table or view does not exist"),
    "42504": (955, "name is already used by an existing object"),
    "42S01": (955, "name is already used by an existing object"),
    "42S02": (942, "table or view does not exist"),
    "42S03": (942, "table or view does not exist"),
    "42S04": (942, "table or view does not exist"),
    "42S11": (955, "name is already used by an existing object"),
    "42S12": (1418, "specified index does not exist"),
    "42S21": (1430, "column being added already exists in table"),
    "42S22": (904, "invalid identifier"),
    "90022": (904, "invalid identifier"),
    "90035": (955, "name is already used by an existing object"),
}
UNIMPLEMENTED = 3001
_CANCELLED_STATES = frozenset({"40502", "57014", "HYT00"})


class OracleError(Exception):
    """Raised for what the client is to be told as ORA-`code`."""

    def __init__(self, code: int, message: str, *, ends_transaction: bool = False) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.ends_transaction = ends_transaction

    @property
    def text(self) -> str:
        """As the server words it."""
        return f"ORA-{self.code:05d}: {self.message}"


class Cancelled(OracleError):
    """Raised when a break of the client ended the statement."""

    def __init__(self) -> None:
        super().__init__(1013, "user requested cancel of current operation")


def translate(state: str, vendor_code: int, message: str) -> OracleError:
    """The ORA- error for an engine's SQLSTATE, number and words."""
    words = message.splitlines()[0] if message else ""
    if state in _CANCELLED_STATES:
        return Cancelled()
    if state in _BY_STATE:
        code, meaning = _BY_STATE[state]
        return OracleError(code, f"{meaning} [{words}]", ends_transaction=state == "40001")
    return OracleError(900, f"invalid SQL statement [{state}/{vendor_code}: {words}]")
