"""Guards around the coordinator: durability, the store, the consumer, the log."""

from __future__ import annotations

from tests.simulation.mutations.base import (
    LATE_STORE,
    OUTAGES,
    SEEKS,
    TWO_LEADERS,
    Change,
    Mutation,
)

OTHERS = (
    # --- while the registry is away -------------------------------------------------------------
    Mutation(
        "time does not count while the registry is away",
        (
            Change(
                "group/group_coordinator.py",
                "if event.registry_away or gap_ms > self.settings.lease_ms // 2:",
                "if gap_ms > self.settings.lease_ms // 2:",
            ),
        ),
        ("OutageMovesNobody", "OnlyWithReason"),
        OUTAGES,
    ),
    Mutation(
        "a registry that refuses to answer is away",
        (
            Change(
                "supervision/registry_watch.py",
                "self._failed = True",
                "self._since_ms = None",
            ),
        ),
        tests=(
            "tests/unit/test_group_runtime.py::"
            "test_while_the_registry_refuses_an_idle_group_takes_nobody_for_dead",
        ),
        note="in the simulator some record always waits, which tells that the registry is away",
    ),
    Mutation(
        "a refusal of a member rests on what is durable",
        (
            Change(
                "group/decision.py",
                "return records_emitted if rests else 0",
                "return 0",
            ),
        ),
        ("RefusalsHold",),
        ("write_latency_ms=40", "false_death=15"),
    ),
    # --- durable before told --------------------------------------------------------------------
    Mutation(
        "replies wait for their records",
        (
            Change(
                "group/decision.py",
                "after = records_before + len(self.records)",
                "after = records_before",
            ),
        ),
        ("DurableReplies",),
    ),
    Mutation(
        "heartbeat replies wait for the assignment they carry",
        (
            Change(
                "group/group_coordinator.py",
                "return Decision(reply=reply, after=self.records_emitted)",
                "return Decision(reply=reply)",
            ),
        ),
        ("DurableReplies",),
        ("write_latency_ms=40",),
    ),
    Mutation(
        "a superseded commit is durable only with its successor",
        (
            Change(
                "group/write_queue.py",
                "through = min([numbers[-1], *(n - 1 for n in self._stands_for.values())])",
                "through = numbers[-1]",
            ),
        ),
        ("DurableReplies",),
        ("write_latency_ms=40", "write_records_max=1", "commit_interval_ms=5"),
    ),
    Mutation(
        "records are written in the order of their decisions",
        (
            Change(
                "group/write_queue.py",
                "numbers = list(self._waiting)[:records_max]",
                "numbers = list(self._waiting)[-records_max:]",
            ),
        ),
        ("DurableReplies", "LiveRecordsTaken"),
        ("write_latency_ms=40", "write_records_max=1"),
    ),
    Mutation(
        "a refused batch means deposed",
        (
            Change(
                "group/write_queue.py",
                "if snapshot is not None and snapshot.generation > generation:",
                "if snapshot is not None and snapshot.generation > generation:\n"
                "        return\n"
                "    if False:",
            ),
        ),
        ("DurableReplies",),
        TWO_LEADERS,
    ),
    # --- the store ------------------------------------------------------------------------------
    Mutation(
        "generation compare in the store",
        (
            Change(
                "store/memory.py",
                "if state is None or not rules.check_generation(state.generation, "
                "generation, group):",
                "if state is None:",
            ),
        ),
        ("StoreRefuses",),
        TWO_LEADERS,
    ),
    Mutation(
        "epoch compare in the store",
        (
            Change(
                "store/rules.py",
                "if row.epoch != write.epoch:\n        return None",
                "if False:\n        return None",
            ),
        ),
        ("StoreRefuses",),
        LATE_STORE,
    ),
    Mutation(
        "checkpoints only rise (store)",
        (Change("store/memory.py", "elif row.checkpoint > record.checkpoint:", "elif False:"),),
        ("CheckpointsHold", "StoreRefuses"),
        (*LATE_STORE, "commit_interval_ms=5"),
    ),
    # --- the consumer ---------------------------------------------------------------------------
    Mutation(
        "assignments are taken in their order",
        (
            Change(
                "consumer/session.py",
                "newer = (assignment.generation, assignment.sequence) > self.seen",
                "newer = True",
            ),
        ),
        ("ConsumerObeys",),
        ("slow=0.4", "join=10"),
    ),
    Mutation(
        "a partition of another epoch is dropped",
        (
            Change(
                "consumer/session.py",
                "if p not in granted or granted[p].epoch != held.epoch",
                "if p not in granted",
            ),
        ),
        ("ConsumerObeys", "OneReader", "ComesToRest"),
        SEEKS,
    ),
    Mutation(
        "what was fetched under another epoch, or twice, is thrown away",
        (
            Change(
                "consumer/session.py",
                "if held is None or held.epoch != epoch or held.draining or base != held.fetched:",
                "if held is None:",
            ),
        ),
        ("InOrder", "NothingFails"),
        ("doubled=0.3", "slow=0.3"),
    ),
    Mutation(
        "only what was processed is committed",
        (
            Change(
                "consumer/session.py",
                "return PartitionProgress(held.partition, held.epoch, done)",
                "return PartitionProgress(held.partition, held.epoch, Progress(held.fetched))",
            ),
        ),
        ("CheckpointsHold",),
    ),
    Mutation(
        "released only when the worker has stopped",
        (Change("consumer/session.py", "if held.draining and held.stopped", "if held.draining"),),
        ("DoneOnce", "ConsumerObeys"),
        ("join=10", "hang=5"),
    ),
    # --- the log --------------------------------------------------------------------------------
    Mutation(
        "epoch compare on fetch",
        (Change("log/read_fence.py", "if epoch < current:", "if False:"),),
        ("OneReader",),
        ("consumer_cut=15", "dismiss_lost=1"),
    ),
    Mutation(
        "the log remembers a producer's sequence",
        (Change("log/producer_state.py", "if header.sequence == expected:", "if True:"),),
        ("AppendedOnce",),
        ("doubled=0.2",),
    ),
    Mutation(
        "the log fences a producer's older epoch",
        (
            Change(
                "log/producer_state.py",
                "if known is not None and header.producer_epoch < known.epoch:",
                "if False:",
            ),
        ),
        ("AppendedOnce",),
        ("producer_crash=15", "slow=0.3"),
    ),
)
