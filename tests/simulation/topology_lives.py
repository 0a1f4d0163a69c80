"""The lives of a coordinator in the world of topologies: how each begins, what it applies to those
who run, and what it tells the logs of its groups' checkpoints.

Rules of this file. `begin_coordinator`, `Applying` and `ToldCheckpoints` decide as they ship. A
coordinator that dies forgets all but what is in the registry and in the logs.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Any

from pxrs_ray.errors import BufferAway, DeadlineExceeded
from pxrs_ray.steps import Do, Steps
from pxrs_ray.topology import applying
from pxrs_ray.topology import coordinator_start as beginning
from pxrs_ray.topology.told_checkpoints import ToldCheckpoints
from tests.simulation.topology_state import PARTITIONS, Died, Kept, Seen


class TopologyLives(ABC):
    """See the rules at the head of this file."""

    dice: random.Random
    kept: Kept
    seen: Seen
    logs: dict[str, list[int]]
    claims: dict[str, dict[str, dict[int, int]]]
    calm: bool

    def __init__(self) -> None:
        self.led: set[str] = set()
        # Which configuration the buffers and groups go by; what the logs know of checkpoints.
        self.buffers_go_by = 0
        self.groups_go_by: dict[str, int] = {}
        self.passed: dict[str, dict[str, dict[int, int]]] = defaultdict(dict)
        self._coming: set[str] = set()
        self._wanted = 0
        self._applying = applying.Applying()
        self._told: defaultdict[str, ToldCheckpoints] = defaultdict(ToldCheckpoints)

    @abstractmethod
    def _carry(self, steps: Steps[Any], group: str, queue: str = "") -> Any:
        """Take steps, one after another; the coordinator dies at some."""

    @abstractmethod
    def _finish(self, before: tuple[str, ...] = ()) -> None:
        """Go on with what was being removed."""

    @abstractmethod
    def _lead(self, group: str) -> None:
        """Take a group's next generation."""

    # --- beginning --------------------------------------------------------------------------------

    def _begin(self) -> None:
        """A coordinator begins, from what the registry holds; one that dies of it has a next."""
        while True:
            self.led, self._coming = set(), set()
            self._applying, self.groups_go_by = applying.Applying(), {}
            self._told.clear()
            try:
                self._carry(beginning.begin_coordinator("t"), "")
            except (Died, BufferAway, DeadlineExceeded):
                continue
            return

    def _made_at_start(self, what: Do[Any]) -> Any:
        kept = self.kept
        match what:
            case beginning.OpenRegistry():
                return 0
            case beginning.ReadTopology():
                kept.groups = {g: q for g, q in kept.groups.items() if g not in kept.ends.groups}
                kept.queues -= set(kept.ends.queues)
                return beginning.FoundTopology(set(kept.listed), set(kept.ends.groups))
            case beginning.LeadListed(group):
                if group not in kept.rows:
                    self.seen.broken.append(f"{group} is led, and being removed")
                    return None
                self._lead(group)
                self._coming.add(group)
            case beginning.OpenQueues():
                for queue in kept.queues:
                    self.logs.setdefault(queue, [0] * PARTITIONS)
                self.buffers_go_by = kept.version
            case beginning.GoOnWith(group):
                self.goes_on(group)
            case beginning.SettleStart():
                self._finish()
            case beginning.KeepWatch():
                self.led = set(self._coming) & kept.listed  # nobody is answered before
        return None

    def goes_on(self, group: str) -> None:
        """It registers with the logs."""
        rows, queue = self.kept.rows[group], self.kept.groups[group]
        if queue not in self.logs:
            self.seen.broken.append(f"{group} goes on, and its queue {queue} has no logs")
            return
        self.claims[queue][group] = {p: row.epoch for p, row in rows.items() if row.epoch}
        self.groups_go_by[group] = self.kept.version
        self.tell(group, everything=True)

    # --- what the logs hear -----------------------------------------------------------------------

    def tell(self, group: str, *, everything: bool = False, lost: bool = False) -> None:
        """A round of telling the logs; they may hear of it and not answer."""
        queue, told = self.kept.groups[group], self._told[group]
        stands = {p: row.checkpoint for p, row in self.kept.rows[group].items()}
        moved = stands if everything else told.untold(stands)
        if not lost or self.dice.random() < 0.5:
            self.passed[queue].setdefault(group, {}).update(moved)
        if not lost:
            told.heard(stands)

    def judge_told(self) -> None:
        """After a round that is heard, the logs know where each group stands."""
        for group in sorted(self.led & self.kept.listed):
            self.tell(group)
            stands = {p: row.checkpoint for p, row in self.kept.rows[group].items()}
            known = self.passed[self.kept.groups[group]].get(group)
            if known != stands:
                self.seen.broken.append(f"{group} stands at {stands}, its logs know {known}")

    # --- another configuration --------------------------------------------------------------------

    def apply(self, wanted: int) -> None:
        """Have another configuration take effect."""
        differs = self.kept.version != wanted
        if not self._applying.has_to(differs=differs):
            return
        self._wanted = wanted
        self._carry(self._applying.apply(sorted(self.led), of_buffers=differs), "")

    def _made_to_apply(self, what: Do[Any]) -> None:
        match what:
            case applying.KeepWanted():
                self.kept.version = self._wanted
            case applying.OpenWanted():
                self.buffers_go_by = self._wanted
            case applying.ReconfigureGroup(group):
                self.groups_go_by[group] = self._wanted

    def judge_applied(self, wanted: int) -> None:
        """Somebody was told that it has taken effect."""
        old = {g: self.groups_go_by.get(g) for g in self.led if self.groups_go_by.get(g) != wanted}
        if old or self.buffers_go_by != wanted:
            self.seen.broken.append(
                f"{wanted} was applied, buffers go by {self.buffers_go_by} and groups by {old}"
            )


OF_START = (
    beginning.OpenRegistry,
    beginning.LeadTopology,
    beginning.ReadTopology,
    beginning.FindHomes,
    beginning.CheckIdentity,
    beginning.GrantLeases,
    beginning.LeadListed,
    beginning.OpenQueues,
    beginning.GoOnWith,
    beginning.SettleStart,
    beginning.SettleAcceptance,
    beginning.KeepWatch,
)
OF_APPLYING = (applying.KeepWanted, applying.OpenWanted, applying.ReconfigureGroup)
# What a buffer may be away for.
CALLS_OF_LIVES = (beginning.OpenQueues, applying.OpenWanted, applying.ReconfigureGroup)
