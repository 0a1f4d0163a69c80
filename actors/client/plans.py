"""Plans as people see them, in a terminal and in a notebook; made by `pxrs_ray.group`."""

from __future__ import annotations

from pxrs_ray.group.events import Plan
from pxrs_ray.group.seek_plan import SeekPlan
from pxrs_ray.status.answers import Shown
from pxrs_ray.status.rendering import Line, Table, Tone, View


class ShownPlan(Shown, Plan):
    """What another number of consumers would move; prints as a table."""

    __slots__ = ()

    @classmethod
    def of(cls, plan: Plan) -> ShownPlan:
        """The same plan."""
        return cls(plan.cause, plan.moves, plan.counts, plan.pause_ms, plan.unplaced)

    def view(self) -> View:
        """Which partitions move, and what each consumer has then."""
        pause = "" if self.pause_ms is None else f", each pausing about {self.pause_ms} ms"
        room = f"; {self.unplaced} consumers wait for new nodes" if self.unplaced else ""
        moves = [(f"P{m.partition}", m.source, m.target, m.reason) for m in self.moves]
        return View(
            [
                Line(f"{self.cause}: {len(self.moves)} partitions move{pause}{room}"),
                Table(("partition", "from", "to", "why"), moves),
                Table(("consumer", "partitions then"), sorted(self.counts.items())),
            ]
        )


class ShownSeekPlan(Shown, SeekPlan):
    """What a seek would repeat and skip; prints as a table."""

    __slots__ = ()

    @classmethod
    def of(cls, plan: SeekPlan) -> ShownSeekPlan:
        """The same plan."""
        return cls(plan.group, plan.rows)

    def view(self) -> View:
        """What a seek would do, for each partition and in sum."""
        rows = [
            (f"P{r.partition}", r.checkpoint, r.offset, r.repeats or None, r.skips or None)
            for r in self.rows
        ]
        sum_up = f"{self.repeats:,} messages come again, {self.skips:,} are skipped"
        return View(
            [
                Table(("partition", "next offset now", "then", "come again", "skipped"), rows),
                Line(sum_up, Tone.WARN if self.skips else Tone.PLAIN),
            ]
        )
