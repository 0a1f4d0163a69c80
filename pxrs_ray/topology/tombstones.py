"""`Tombstones`: what of a topology is being removed, or is gone, and must not come back. Pure.

Rules of this file. It is one document of the topology's registry. It names what is to be removed
before anything of it is touched, and until all of it is gone, so that a removal that was cut off is
finished by the next coordinator. A group's name can be used again. What was given out under it once
(epochs, generations) is never given out again, so one number for all that are gone says where new
groups begin. A queue's name can be used again too, and its offsets then begin anew: the number of
its former lives makes it another queue for whatever is kept outside.
"""

from __future__ import annotations

from dataclasses import field, replace

from pxrs_ray.codec import json_codec
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Generation

DOCUMENT = "ends"


@dataclass(frozen=True, slots=True)
class Tombstones:
    """`groups` names the queue of each group that is going; names are full names.

    No new group gives out an epoch or a generation up to `epoch` and `generation`. `lives` says
    how often a queue of a name was removed.
    """

    epoch: Epoch = 0
    generation: Generation = 0
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    topology: bool = False
    lives: dict[str, int] = field(default_factory=dict)

    def with_group(
        self, group: str, queues: tuple[str, ...], epoch: Epoch, generation: Generation
    ) -> Tombstones:
        """A group is going that had given out these; its epochs are known to these queues."""
        return replace(
            self,
            epoch=max(self.epoch, epoch),
            generation=max(self.generation, generation),
            groups={**self.groups, group: queues},
        )

    def without_group(self, group: str) -> Tombstones:
        """A group is gone; its numbers stay."""
        return replace(self, groups={g: q for g, q in self.groups.items() if g != group})

    def with_queue(self, queue: str, life: int) -> Tombstones:
        """A queue is going in its life of this number; whoever has its name next is another."""
        if queue in self.queues:
            return self
        lives = {**self.lives, queue: life + 1}
        return replace(self, queues=(*self.queues, queue), lives=lives)

    def without_queue(self, queue: str) -> Tombstones:
        """A queue is gone."""
        return replace(self, queues=tuple(q for q in self.queues if q != queue))

    def life(self, queue: str) -> int:
        """How many queues of this name are gone."""
        return self.lives.get(queue, 0)


ENDS = json_codec("registry: what is going, of a topology", Tombstones)


def ends_from(text: str) -> Tombstones:
    """What a document says; '' is a topology of which nothing ever went."""
    if not text:
        return Tombstones()
    found: Tombstones = ENDS.decode_text(text)
    return found
