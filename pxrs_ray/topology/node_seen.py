"""`NodeSeen`: a node, and what its disk tells of the logs of slots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.identity import Age, Terms
from pxrs_ray.model import Slot

NO_COPY: Age = (-1, 0)


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A living node of the cluster. `disk` is '' where there is none, or while nobody has looked
    (`unknown`); `slots` are those whose logs lie there, each with the age of that copy, and
    `terms` are what it tells of those logs, and `own_terms` of this topology's own.
    `free_bytes` is what its disk had left when somebody looked. `labels` are those that Ray has of
    the node."""

    node: str
    host: str
    disk: str = ""
    boot: str = ""
    cpus: float = 1.0
    draining: bool = False
    slots: Mapping[Slot, Age] = field(default_factory=dict)
    unknown: bool = False
    free_bytes: int | None = None
    terms: Mapping[Slot, Terms] = field(default_factory=dict)
    own_terms: Mapping[Slot, Terms] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def place(self, spread_by: str) -> str:
        """What may be lost with it at once: all that have the same value of that label. A node that
        does not have the label is lost alone, as every host is where none is named."""
        return f"={self.labels[spread_by]}" if self.labels.get(spread_by) else self.host


def told_term(slot: Slot, nodes: Iterable[NodeSeen]) -> int:
    """The newest term of a slot that any disk tells of."""
    return max((node.terms[slot].told for node in nodes if slot in node.terms), default=0)


def has_newest(slot: Slot, nodes: Sequence[NodeSeen], *, is_enough: bool) -> bool:
    """Whether the newest logs of a slot whose home nobody knows are here, or any that are to be
    enough.

    Where a copy, or a note, tells that they have left for a home of a later term, that home may
    have them; except when both copies of that move are here, of which none was served since.
    """
    has = [node for node in nodes if node.disk and slot in node.slots]
    told = told_term(slot, nodes)
    both = sum(slot in node.terms and node.terms[slot].told == told for node in has) > 1
    newest, _ = max((node.slots[slot] for node in has), default=NO_COPY)
    return bool(has) and (newest >= told or both or is_enough)
