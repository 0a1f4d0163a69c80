"""`LinkPorts`: on which ports buffers take connections of other nodes, as an option says it."""

from __future__ import annotations

import re

from pxrs_ray.late_dataclass import dataclass

ANY = "any"
OFF = "off"
PATTERN = r"^(any|off|\d{1,5}-\d{1,5})$"
FIRST, LAST = 1_024, 65_535


@dataclass(frozen=True, slots=True)
class LinkPorts:
    """The ports from `first` to `last`; `last` 0 is any that is free."""

    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.last else ANY


def link_ports(text: str) -> LinkPorts | None:
    """What the option says; None where there are to be no links. Raises ValueError."""
    if text == OFF:
        return None
    if text == ANY:
        return LinkPorts()
    if not re.match(PATTERN, text):
        raise ValueError(f"link_ports = {text!r}: must be 'any', 'off' or like '20000-20100'")
    first, last = map(int, text.split("-"))
    if not FIRST <= first <= last <= LAST:
        raise ValueError(
            f"link_ports = {text!r}: must go from a port to a higher one, of {FIRST} to {LAST}"
        )
    return LinkPorts(first, last)
