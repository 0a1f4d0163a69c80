"""Which states met which events in a run: what many runs are counted and steered by.

A pair is a rough state and what happened in it: of the group at each decision, of each member at
each request, of the logs by what befell their disk, and of the run by its faults in a row.
"""

from __future__ import annotations

from pxrs_ray.model import MemberId
from tests.simulation.history import (
    Acknowledged,
    Appended,
    Asked,
    Decided,
    FeedDone,
    FeedEnded,
    Fetched,
    Harmed,
    History,
    Kept,
    Obeyed,
    Refused,
    RegistryAway,
    Struck,
    Unserved,
)

Pair = tuple[str, str]
MANY = 2


def pairs(history: History) -> set[Pair]:
    """Every pair of a run."""
    found: set[Pair] = set()
    members: dict[MemberId, str] = {}
    registry, disk, fault = "", "", "calm"
    for event in history:
        kind = type(event).__name__
        match event:
            case Decided():
                found.add((f"group {_of_group(event)}{registry}", type(event.event).__name__))
            case Asked():
                found.add((f"member {members.get(event.member, 'new')}{registry}", event.what))
            case Obeyed():
                members[event.assignment.member] = _of_member(event)
            case Refused() | Unserved():
                members[event.member] = kind
            case RegistryAway():
                registry = " registry away" if event.away else ""
            case Struck():
                found.add((f"after {fault}", event.fault))
                fault = event.fault
                disk = fault if fault.startswith(("disk", "log", "power", "older")) else disk
            case FeedDone() | FeedEnded():
                found.add((f"feed after {fault}", kind))
            case Appended() | Acknowledged() | Fetched() | Harmed() | Kept():
                found.add((f"log {disk}", kind))
    return found


def _of_group(event: Decided) -> str:
    signs = [f"{min(len(event.members), MANY)} members"]
    if event.revoking:
        signs.append("revoking")
    if event.seeking:
        signs.append("seeking")
    if event.target_before and event.target != event.target_before:
        signs.append("moving")
    signs.append(f"{min(len(event.records), MANY)} records")
    return " ".join(signs)


def _of_member(event: Obeyed) -> str:
    told = event.assignment
    signs = [f"{min(len(told.grants), MANY)} partitions"]
    if told.revoking:
        signs.append("revoking")
    if told.preparing:
        signs.append("preparing")
    if told.paused:
        signs.append("paused")
    return " ".join(signs)
