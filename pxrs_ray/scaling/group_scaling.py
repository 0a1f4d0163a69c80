"""`GroupScaling`: when a group's scaler is asked, and which of its advice is obeyed. Pure: see
`pxrs_ray.steps`.

Rules of this file. While a buffer is away nothing is advised: what it holds would look as if it
were done. A number that was set or released by hand holds against what the load said before: an
advice is obeyed only if nobody has pinned or released the number by the time its turn has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pxrs_ray.clock import Instant
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId, PartitionRow
from pxrs_ray.scaling.observation import Advice, Observation, PartitionLoad, ScalerSettings
from pxrs_ray.scaling.scaler import Scaler
from pxrs_ray.steps import Do, Steps


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group now: its rows, how many partitions its queue has, how many consumers are wanted, and
    how many of them run."""

    rows: Sequence[PartitionRow]
    partitions: int
    wanted: int
    running: int


@dataclass(frozen=True, slots=True)
class AskLogEnds(Do[Any]):
    """Ask where each log of the queue stands; what cannot be asked now is missing."""


@dataclass(frozen=True, slots=True)
class AskAges(Do[Any]):
    """Ask for the timestamp of the message at each offset; what cannot be asked is missing."""

    offsets: Mapping[PartitionId, Offset]


@dataclass(frozen=True, slots=True)
class SeeGroup(Do[Any]):
    """Answer a `GroupSeen`."""


@dataclass(frozen=True, slots=True)
class ScaleTo(Do[Any]):
    """Have as many consumers as `choose` says when this change's turn has come, given how many are
    wanted then."""

    advice: Advice
    before: int
    choose: Callable[[int], int]


class GroupScaling:
    """The scaler of one group; idle until it is given settings."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self.advice: Advice | None = None
        self._now = now
        self._scaler: Scaler | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is a scaler to be asked."""
        return self._scaler is not None

    def configure(self, settings: ScalerSettings | None) -> None:
        """Begin, go on with other settings, or (None) leave the number of consumers alone."""
        self.advice = None
        self._scaler = Scaler(settings) if settings is not None else None

    def pin(self, consumers: int | None) -> None:
        """Keep a number that an operator has set, until None releases it."""
        if self._scaler is not None:
            self._scaler.pin(consumers)

    def looking(self) -> Steps[None]:
        """Look once, and do what the scaler says."""
        scaler = self._scaler
        if scaler is None:
            return
        ends: Mapping[PartitionId, LogEnds] = yield AskLogEnds()
        group: GroupSeen = yield SeeGroup()
        if len(ends) < group.partitions:
            return
        late = {
            row.partition: row.checkpoint
            for row in group.rows
            if ends[row.partition].lag(row.checkpoint)
        }
        ages: Mapping[PartitionId, int] = {}
        if late:
            ages = yield AskAges(late)
            group = yield SeeGroup()
        seen = self._observed(group, ends, ages)
        self.advice = advice = scaler.advise(seen)
        if advice.consumers != seen.wanted:
            pinned = scaler.pinned

            def choose(wanted: int) -> int:
                holds = self._scaler is not None and self._scaler.pinned == pinned
                return advice.consumers if holds else wanted

            yield ScaleTo(advice, seen.wanted, choose)

    def _observed(
        self,
        group: GroupSeen,
        ends: Mapping[PartitionId, LogEnds],
        ages: Mapping[PartitionId, int],
    ) -> Observation:
        now = self._now()
        loads = tuple(
            PartitionLoad(
                row.partition,
                ends[row.partition].end_offset,
                max(row.checkpoint, ends[row.partition].start_offset),
                max(0, now.wall_ms - ages[row.partition]) if row.partition in ages else 0,
                row.owner,
            )
            for row in group.rows
        )
        return Observation(now.monotonic_ms, group.wanted, group.running, loads)
