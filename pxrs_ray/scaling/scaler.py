"""`Scaler`: how many consumers a group should have now. Pure: no clock, no cluster, no wait.

Theory of operation. The load is the arriving rate, plus the backlog spread over `drain_ms`; the
throughput of one consumer is measured on consumers that had enough to do. Their quotient is the
demand. Three things bound it:

* A partition has one consumer: only partitions that are late count, so one hot partition never
  calls for more than one more consumer. It is reported as skew.
* After a scale-out, throughput is compared with what it was. More consumers that bring less than
  `gain_min` more while there still is a backlog are undone, and that size is not tried again for
  `remember_ms`: something else is slow then (a database, a paid API's limit).
* A scale-out is at most fourfold, and not before the last change has settled. A scale-in is one
  step at a time, only after `calm_ms` in which fewer consumers would have been enough. A change
  moves partitions, so one that is not worth it is not made.
"""

from __future__ import annotations

import math
from collections import deque

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import PartitionId
from pxrs_ray.scaling.observation import Advice, Observation, ScalerSettings
from pxrs_ray.scaling.rate_meter import ObservedRates, RateMeter

SKEW_SHARE = 0.5
STEP_FACTOR_MAX = 4
WORTH_MORE = 1.5
HALF = 0.5


@dataclass(slots=True)
class _Trial:
    """A scale-out whose effect is not known yet."""

    before: int
    after: int
    throughput_before: float
    running_since_ms: int | None = None


class Scaler:
    """One group's scaler. Feed it observations in the order of time."""

    def __init__(self, settings: ScalerSettings) -> None:
        self.settings = settings
        self.pinned: int | None = None
        self._meter = RateMeter(settings.settle_ms)
        self._trial: _Trial | None = None
        self._changed_ms: int | None = None
        self._needed: deque[tuple[int, int]] = deque()
        self._ceilings: list[tuple[int, int]] = []
        self._burned: int | None = None
        self._busy_ms: int | None = None

    def pin(self, consumers: int | None) -> None:
        """Scale by hand: the size stays as it was set, until it is released with None."""
        self.pinned = consumers

    def advise(self, seen: Observation) -> Advice:
        """How many consumers there should be, given all that was observed up to `seen`."""
        if self._busy_ms is None or seen.lag:
            self._busy_ms = seen.at_ms
        rates = self._meter.look(seen)
        if rates.arriving > 0:
            self._busy_ms = seen.at_ms
        if self.pinned is not None:
            return Advice(self._bounded(self.pinned, seen), "pinned by hand")
        needed, skew = self._needed_now(seen, rates)
        self._needed.append((seen.at_ms, needed))
        # One look from before the calm is kept: looks need not be evenly spaced.
        while len(self._needed) > 1 and seen.at_ms - self._needed[1][0] >= self.settings.calm_ms:
            self._needed.popleft()
        advice = self._judge_trial(seen, rates, needed, skew)
        advice = advice or self._change(seen, rates, needed, skew)
        if advice.consumers != seen.wanted:
            self._changed_ms = seen.at_ms
        return advice

    # --- demand -----------------------------------------------------------------------------------

    def _needed_now(
        self, seen: Observation, rates: ObservedRates
    ) -> tuple[int, PartitionId | None]:
        """How many consumers this load needs, and the partition that alone is late."""
        late = [p for p in seen.partitions if p.lag and p.lag_ms > self.settings.target_lag_ms]
        skew = None
        if late and seen.lag:
            worst = max(late, key=lambda p: p.lag)
            if len(seen.partitions) > 1 and worst.lag > SKEW_SHARE * seen.lag and len(late) == 1:
                skew = worst.partition
        if rates.per_consumer is None or rates.per_consumer <= 0:
            # Nobody was seen at full work yet: one fewer may do, unless messages are late.
            if not seen.lag and rates.arriving == 0:
                return 0, skew
            return max(1, seen.wanted if late else seen.wanted - 1), skew
        steady = rates.arriving / (rates.per_consumer * self.settings.utilisation)
        catch_up = 0.0
        if late:
            backlog = sum(p.lag for p in late)
            catch_up = backlog / (rates.per_consumer * self.settings.drain_ms / 1_000)
            # Each late partition can keep one consumer busy, and no more than one.
            catch_up = min(catch_up, float(len(late)))
        needed = math.ceil(steady + catch_up - 1e-9)
        if skew is not None:
            needed = min(needed, max(seen.wanted, math.ceil(steady)))
        return max(needed, 1 if seen.lag or rates.arriving > 0 else 0), skew

    def _bounded(self, consumers: int, seen: Observation) -> int:
        most = min(self.settings.consumers_max, len(seen.partitions))
        return max(min(self.settings.consumers_min, most), min(consumers, most))

    def _set_ceiling(self, size: int, now_ms: int) -> None:
        self._ceilings.append((size, now_ms + self.settings.remember_ms))
        self._burned = size

    def _ceiling(self, now_ms: int) -> int:
        """The largest size to try: none that was useless lately, and no leap beyond one ever."""
        self._ceilings = [(size, until) for size, until in self._ceilings if until > now_ms]
        most = self.settings.consumers_max
        if self._burned is not None:
            most = self._burned + max(1, self._burned // 3)
        return min((size for size, _ in self._ceilings), default=most)

    # --- change -----------------------------------------------------------------------------------

    def _judge_trial(
        self, seen: Observation, rates: ObservedRates, needed: int, skew: PartitionId | None
    ) -> Advice | None:
        """See what the last change outwards has brought; None when there is nothing to say."""
        trial = self._trial
        if trial is None:
            return None
        if seen.running < trial.after:
            # Nodes may take minutes to come: what is asked for meanwhile follows the need.
            wanted = self._bounded(min(needed, self._ceiling(seen.at_ms)), seen)
            if wanted >= trial.after * WORTH_MORE:
                trial.after = min(wanted, seen.running * STEP_FACTOR_MAX**2)
                trial.after = max(trial.after, seen.wanted)
                return Advice(trial.after, f"{seen.lag} wait while consumers start", skew)
            return Advice(seen.wanted, f"waiting for {trial.after - seen.running} consumers", skew)
        if trial.running_since_ms is None:
            trial.running_since_ms = seen.at_ms
            self._meter.forget_window()
        if not any(p.lag for p in seen.partitions):
            self._trial = None
            return None
        if seen.at_ms - trial.running_since_ms < self.settings.settle_ms:
            return Advice(seen.wanted, "the last change has not settled", skew)
        self._trial = None
        gain = rates.done - trial.throughput_before
        if gain >= self.settings.gain_min * trial.throughput_before:
            due = (trial.after - trial.before) / max(1, trial.before) * trial.throughput_before
            if gain < HALF * due:
                # It helped, and far less than it should have: more would be worse, not better.
                self._set_ceiling(trial.after, seen.at_ms)
            else:
                self._burned = None
            return None
        self._set_ceiling(trial.before, seen.at_ms)
        self._needed.clear()
        return Advice(
            self._bounded(trial.before, seen),
            f"{trial.after} consumers did {rates.done:.0f}/s where {trial.before} did "
            f"{trial.throughput_before:.0f}/s: undone, and not tried again for a while",
            skew,
        )

    def _change(
        self, seen: Observation, rates: ObservedRates, needed: int, skew: PartitionId | None
    ) -> Advice:
        settings, now_ms = self.settings, seen.at_ms
        if not seen.lag and rates.arriving == 0 and settings.consumers_min == 0:
            assert self._busy_ms is not None
            if now_ms - self._busy_ms >= settings.idle_ms:
                return Advice(0, "nothing to do", skew)
        if seen.wanted == 0:
            return Advice(
                self._bounded(needed, seen), "messages have arrived" if needed else "idle"
            )
        wanted = self._bounded(min(needed, self._ceiling(now_ms)), seen)
        settled = self._changed_ms is None or now_ms - self._changed_ms >= settings.settle_ms
        late = any(p.lag_ms > settings.target_lag_ms for p in seen.partitions if p.lag)
        if wanted > seen.wanted and late and settled and seen.running >= seen.wanted:
            size = min(wanted, seen.wanted * STEP_FACTOR_MAX)
            self._trial = _Trial(seen.wanted, size, rates.done)
            return Advice(
                size,
                f"{rates.arriving:.0f}/s arrive, one consumer does "
                f"{rates.per_consumer or 0:.0f}/s, {seen.lag} wait",
                skew,
            )
        calm = self._needed and now_ms - self._needed[0][0] >= settings.calm_ms
        enough = max((count for _, count in self._needed), default=needed)
        smaller = self._bounded(max(enough, settings.consumers_min), seen)
        if smaller < seen.wanted and calm and settled:
            return Advice(smaller, f"{smaller} would have been enough for a while", skew)
        return Advice(self._bounded(seen.wanted, seen), "as it should be", skew)
