"""Every guard, and how to take it away: the text that is changed, and who must notice.

Rules of this file. One guard a mutation. Where a second layer stands behind a guard, either a
checker of its own sees the first one fail, or both are taken away at once, and `note` says so.
`settings` make likelier what it takes to show the hole; the unharmed copy is run with each of
them too, and has to pass.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """In `file` (below pxrs_ray), `text` becomes `instead`."""

    file: str
    text: str
    instead: str


@dataclass(frozen=True)
class Mutation:
    """A guard that is gone. At least one of `seen_by` has to notice."""

    guard: str
    changes: tuple[Change, ...]
    seen_by: tuple[str, ...]
    settings: tuple[str, ...] = ()
    note: str = ""


SEEKS = ("seek=15", "slow=0.3", "slow_ms_max=400")
LATE_STORE = ("store_trouble=20", "seek=10")
SILENT_CRASHES = ("consumer_crash=10", "death_noticed=0")
TWO_LEADERS = ("second_coordinator=15", "write_records_max=1", "write_latency_ms=40")

_EPOCH_IN_CORE = Change(
    "group_state.py",
    "return row.epoch == epoch and row.owner == member and row.incarnation == incarnation",
    "return row.owner == member and row.incarnation == incarnation",
)
_OWNER_IN_CORE = Change(
    "group_state.py",
    "return row.epoch == epoch and row.owner == member and row.incarnation == incarnation",
    "return row.epoch == epoch",
)

MUTATIONS = (
    # --- the core: stale calls ------------------------------------------------------------------
    Mutation(
        "epoch compare on commit and release (core)",
        (_EPOCH_IN_CORE,),
        ("OnlyWithReason", "DurableReplies", "OneOwner"),
        SEEKS,
    ),
    Mutation(
        "outcome compare on release (core)",
        (Change("coordinator.py", "if outcome is not Outcome.FENCED:", "if True:"),),
        ("OnlyWithReason", "NothingFails"),
        SEEKS,
    ),
    Mutation(
        "incarnation compare of callers",
        (
            Change(
                "coordinator.py",
                "if slot is None or slot.member.incarnation != incarnation:",
                "if slot is None:",
            ),
            _OWNER_IN_CORE,
        ),
        ("OnlyWithReason", "OneOwner", "ComesToRest", "DurableReplies"),
        ("twin=15", "dismiss_lost=1"),
        "the owner compare of the row stands behind it: both are gone",
    ),
    Mutation(
        "newest incarnation wins a join",
        (
            Change(
                "coordinator.py",
                "if member.incarnation > newest:",
                "if member.incarnation != newest:",
            ),
        ),
        ("LiveRecordsTaken", "OnlyWithReason", "NothingFails", "ConsumerObeys"),
        ("twin=10", "doubled=0.3", "slow=0.4"),
    ),
    Mutation(
        "an AWAY member may not act",
        (
            Change(
                "coordinator.py",
                "if slot.phase is MemberPhase.AWAY:\n            raise",
                "if False:\n            raise",
            ),
        ),
        ("ComesToRest",),
        ("false_death=15", "grace_share=1", "dismiss_lost=1"),
    ),
    Mutation(
        "leases end",
        (Change("coordinator.py", "if slot.until_ms > now.monotonic_ms:", "if True:"),),
        ("ComesToRest",),
        SILENT_CRASHES,
    ),
    Mutation(
        "a live member's lease is renewed",
        (
            Change(
                "coordinator.py",
                "slot.until_ms = now.monotonic_ms + self.settings.lease_ms\n        return slot",
                "return slot",
            ),
        ),
        ("OnlyWithReason", "ComesToRest"),
    ),
    Mutation(
        "a repeated join is a sign of life",
        (
            Change(
                "coordinator.py",
                "                self._heard(member.member, member.incarnation, now)",
                "                pass",
            ),
        ),
        ("OnlyWithReason", "ComesToRest"),
        ("write_latency_ms=40", "write_records_max=1", "lease_ms=300", "partitions=8"),
    ),
    Mutation(
        "revoke deadlines end",
        (Change("coordinator.py", "if deadline_ms <= now.monotonic_ms:", "if False:"),),
        ("PromptDeadlines", "ComesToRest"),
        ("hang=10", "join=10"),
    ),
    Mutation(
        "a coordinator that stood still forgives",
        (Change("coordinator.py", "if gap_ms > self.settings.lease_ms // 2:", "if False:"),),
        ("OnlyWithReason",),
        ("coordinator_freeze=15",),
    ),
    # --- the core: hand-over --------------------------------------------------------------------
    Mutation(
        "asked back before taken",
        (
            Change(
                "sharing.py",
                "draft.revoke(row.partition)",
                'draft.release(row.partition, "taken")',
            ),
        ),
        ("OnlyWithReason",),
        ("join=10",),
    ),
    Mutation(
        "unowned before claimed",
        (
            Change(
                "sharing.py",
                "        if row.owner is not None:\n"
                "            continue\n"
                "        partition = row.partition",
                "        partition = row.partition\n"
                "        if state.target.get(partition) == row.owner:\n"
                "            continue",
            ),
            Change(
                "transitions.py",
                "    PartitionPhase.REVOKING: {\n",
                "    PartitionPhase.REVOKING: {\n"
                "        PartitionEvent.CLAIM: PartitionPhase.OWNED,\n",
            ),
        ),
        ("LiveRecordsTaken", "NothingFails"),
        ("join=10",),
        "the transition table stands behind it: both are gone, and the store has to refuse",
    ),
    Mutation(
        "checkpoints only rise (core)",
        (
            Change("coordinator.py", "if row.checkpoint < stored.checkpoint:", "if False:"),
            Change(
                "group_state.py",
                'assert write.checkpoint >= row.checkpoint, "checkpoints never fall"',
                "pass",
            ),
        ),
        ("LiveRecordsTaken",),
        ("slow=0.4", "commit_interval_ms=5", "slow_ms_max=300"),
        "the assertion in apply stands behind it: both are gone, and the store has to refuse",
    ),
    Mutation(
        "the least possible movement",
        (
            Change(
                "coordinator.py",
                "retarget(draft)\n        draft.finish_leaving()",
                "self.state.target.clear()\n"
                "        retarget(draft)\n"
                "        draft.finish_leaving()",
            ),
        ),
        ("LeastMovement",),
        ("leave=15", "join=10"),
    ),
    Mutation(
        "a restart takes nothing from registered owners",
        (
            Change(
                "coordinator.py",
                "if slot is None or slot.member.incarnation != row.incarnation:",
                "if slot is not None:",
            ),
        ),
        ("OnlyWithReason",),
        ("coordinator_crash=10",),
    ),
    # --- durable before told --------------------------------------------------------------------
    Mutation(
        "replies wait for their records",
        (
            Change(
                "draft.py", "after = records_before + len(self.records)", "after = records_before"
            ),
        ),
        ("DurableReplies",),
    ),
    Mutation(
        "heartbeat replies wait for the assignment they carry",
        (
            Change(
                "coordinator.py",
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
                "write_queue.py",
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
                "write_queue.py",
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
                "write_queue.py",
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
                "consumer.py",
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
                "consumer.py",
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
                "consumer.py",
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
                "consumer.py",
                "return Progress(self.partition, self.epoch, self.processed,",
                "return Progress(self.partition, self.epoch, self.fetched,",
            ),
        ),
        ("CheckpointsHold",),
    ),
    Mutation(
        "released only when the worker has stopped",
        (Change("consumer.py", "if held.draining and held.stopped", "if held.draining"),),
        ("DoneOnce", "ConsumerObeys"),
        ("join=10", "hang=5"),
    ),
    # --- the log --------------------------------------------------------------------------------
    Mutation(
        "epoch compare on fetch",
        (Change("log/fence.py", "if epoch < current:", "if False:"),),
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
