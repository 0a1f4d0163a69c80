"""Guards of feeds: the ledger's facts, the steps of a Spark partition, calls, and reports."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation
from tests.simulation.worlds import FEED

# Spark partitions that come out different now and then, and tasks that die.
UNSTABLE = ("unstable=1", "task_crash=10", "second_driver=5")
OTHERS = ("other_data=10", "driver_crash=5")


def _feed(
    guard: str,
    file: str,
    text: str,
    instead: str,
    *seen_by: str,
    settings: tuple[str, ...] = (),
    note: str = "",
) -> Mutation:
    """A guard of the feed, that a checker notices in simulated feeds."""
    change = Change(f"feed/{file}", text, instead)
    return Mutation(guard, (change,), seen_by, settings, note, world=FEED)


STEPS = "partition_feed.py"
CALLS = "feed_calls.py"

FEEDING = (
    _feed(
        "rows wait until the ledger has their fingerprint",
        STEPS,
        "                frames, held = held, frames\n",
        "                pass\n",
        "FeedsExact",
        settings=("push=1", *UNSTABLE),
        note="what came out different is appended before it is refused",
    ),
    _feed(
        "who had more pieces was another",
        STEPS,
        "yield from marks.tell(steps, NO_PIECE)",
        "pass",
        "FeedsExact",
        "ReportsTrue",
        settings=("push=1", "chunk_rows=3", *UNSTABLE, "task_crash=20"),
    ),
    # In the simulated world once in some hundred long runs: that is too rarely for a net.
    Mutation(
        "what the ledger's log does not compare any more is compared",
        (Change(f"feed/{STEPS}", "if uncompared > self._uncompared:", "if False:"),),
        tests=("tests/unit/test_feed_steps.py",),
    ),
    _feed(
        "a repeated fact is a repeat, or refused",
        "facts.py",
        'writer = producer_id(f"ledger/{self.ledger}/{self.feed_id}/{identity}")',
        'writer = producer_id(f"ledger/{self.ledger}/{self.feed_id}/{identity}/{now_ms}")\n'
        "        sequence = 0",
        "FeedsExact",
        "ReportsTrue",
        settings=UNSTABLE,
    ),
    _feed(
        "a repeated Spark partition sends the same frames",
        STEPS,
        'return producer_id(f"feed/{self.target.queue}/{self.feed_id}/{self.number}")',
        'return producer_id(f"feed/{self.feed_id}/{self.number}/{self.now_ms}")',
        "FeedsExact",
        "AppendedOnce",
    ),
    _feed(
        "a Spark partition is done when every frame is in the logs",
        STEPS,
        "added, repeated = yield Drain()",
        "added, repeated = 0, 0",
        "FeedsExact",
        "ReportsTrue",
    ),
    _feed(
        "a feed's call without an answer is made again",
        CALLS,
        "return self._left(call, call.frames, error, now_ms)",
        "return self._left(call, [], error, now_ms)",
        "FeedsExact",
    ),
    _feed(
        "a feed's frame that was refused in passing is sent again",
        CALLS,
        "                left.append(frame)\n",
        "                pass\n",
        "FeedsExact",
        settings=("log_restart=10",),
    ),
    _feed(
        "a feed that comes in other Spark partitions is refused",
        "feed_run.py",
        "if known != plan:",
        "if False:",
        "FeedsExact",
        "ReportsTrue",
        settings=("other_plan=10",),
    ),
    _feed(
        "a feed that is done is not reported of other rows",
        STEPS,
        "if told.done is not None and told.done != done:",
        "if False:",
        "ReportsTrue",
        "FeedsExact",
        settings=("push=0", *OTHERS),
    ),
    _feed(
        "each Spark partition counts once in the report",
        "feed_run.py",
        "self.routed[routed.number] = routed",
        "self.routed[len(self.routed)] = routed",
        "ReportsTrue",
        settings=("push=0", "fetch_failure=15"),
    ),
    _feed(
        "each micro-batch has frames of its own",
        STEPS,
        "self.target, self.number, self.identity, self.epoch, self.now_ms, self.called",
        "self.target, self.number, self.identity, 0, self.now_ms, self.called",
        "FeedsExact",
        "ComesToRest",
        settings=("batches=6",),
    ),
    _feed(
        "a Spark partition that was begun is compared with its fingerprints",
        STEPS,
        "if known is not None and known != digest:",
        "if False:",
        "FeedsExact",
        "ReportsTrue",
        settings=("push=1", *UNSTABLE, *OTHERS),
    ),
    _feed(
        "a share of a queue ends where the next one begins",
        "read_plan.py",
        "min(count, self.end - base_offset)",
        "count",
        "NothingFails",
    ),
    _feed(
        "a share is read to its end",
        "read_plan.py",
        "        self._at = next_offset\n",
        "        self._at = None\n",
        "NothingFails",
    ),
    _feed(
        "an error of one Spark partition is told when all are over",
        "feed_round.py",
        "self._met = self._met or error",
        "pass",
        "FeedsExact",
        "ReportsTrue",
        settings=("push=1", *UNSTABLE, *OTHERS),
    ),
)
