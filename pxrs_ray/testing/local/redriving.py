"""What an operator's `pxrs quarantine retry` does: parked messages again, key by key, in order."""

from __future__ import annotations

from dataclasses import replace

from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.testing.local.failed_messages import GivenUpMessage
from pxrs_ray.testing.local.group import LocalGroup
from pxrs_ray.testing.local.member import LocalMember
from pxrs_ray.testing.local.work import ScheduledWork


def redrive(group: LocalGroup, key: bytes | None) -> int:
    """Deliver what is parked of `key`, or of every key; answers how many went through.

    A message that fails again stays first of its key, and everything behind it waits. A key of
    which nothing is left flows again.
    """
    group.settle()
    passed = 0
    parked = group.failed.quarantine
    for place in [at for at in parked if key is None or at[1] == key]:
        partition, of_key = place
        found = [m for m in group.members if partition in m.works and not m.cut_off]
        work = found[0].works[partition] if found else None
        if not isinstance(work, ScheduledWork) or not isinstance(work.scheduler, KeyLanes):
            continue
        while parked[place] and _goes_through(found[0], work, parked[place]):
            passed += 1
        if not parked[place] and (of_key is None or work.scheduler.unpark(of_key)):
            del parked[place]
    return passed


def _goes_through(member: LocalMember, work: ScheduledWork, entries: list[GivenUpMessage]) -> bool:
    first = entries[0]
    shared = replace(work.shared, attempt=first.attempts + 1)
    raised = member.call(Delivery(first.message, shared), [first.message])
    if raised is not None:
        entries[0] = replace(first, attempts=first.attempts + 1, error=told(raised))
        return False
    entries.pop(0)
    return True
