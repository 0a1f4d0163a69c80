"""A registry that went back, as the disks of its slots tell it, and how it is gone on with. Pure.

Rules of this file. The registry has each home of a slot before a disk hears of it. So a disk that
tells of a later one than the registry knows is a witness: logs of that slot were acknowledged
elsewhere since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pxrs_ray.log.identity import Terms
from pxrs_ray.model import Slot
from pxrs_ray.topology.homes import Home, Homes
from pxrs_ray.topology.node_seen import NO_COPY, NodeSeen, told_term


def later_homes(homes: Homes, nodes: Sequence[NodeSeen]) -> dict[Slot, Home]:
    """The slots of which a disk tells of a later home than the registry knows, each with the last
    home that is told of: the registry is an older one, and would have an older copy served.

    A home without a disk is one that only notes tell of: its logs have left it.
    """
    found = {}
    for slot, home in homes.slots.items():
        tell = [node for node in nodes if _tells_of_later(home, node, slot)]
        if tell:
            last = max(tell, key=lambda n: (n.slots.get(slot, NO_COPY), n.disk == home.disk))
            disk = last.disk if slot in last.slots else ""
            found[slot] = Home(disk, last.node, last.host, home.term, last.boot, moves=home.moves)
    return found


def _tells_of_later(home: Home, node: NodeSeen, slot: Slot) -> bool:
    terms, since = node.own_terms.get(slot, Terms()), home.since or home.term
    if not home.disk:
        return False
    # A move notes the next term on the disks before the registry has it; nobody serves by that.
    newer = terms.served > home.term or terms.told > home.term + home.leaving
    # Logs are removed when the registry has their next home.
    stay_over = terms.left > since if node.disk == home.disk else terms.served >= since
    return newer or stay_over


def above_terms(homes: Homes, nodes: Sequence[NodeSeen]) -> Homes:
    """`homes` of a registry that has lost writes, gone on with: each term is above all that the
    disks tell of, so none is given to a second home. A slot is at home where it had its last home
    that is told of: it waits for that host."""
    later = {**homes.behind, **later_homes(homes, nodes)}
    for slot, home in homes.slots.items():
        last = later.get(slot, home)
        newest = told_term(slot, nodes)
        if last.disk != home.disk or newest >= home.term:
            term = max(newest, home.term) + 1
            home = replace(last if last.disk != home.disk else home, term=term, since=term)
        homes = homes.with_slot(slot, home)
    return replace(homes, behind={})
