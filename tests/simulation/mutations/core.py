"""Guards of the coordinator: against stale calls, and in hand-overs."""

from __future__ import annotations

from tests.simulation.mutations.base import SEEKS, SILENT_CRASHES, Change, Mutation

_EPOCH_IN_CORE = Change(
    "group/group_state.py",
    "return row.epoch == epoch and row.owner == member and row.incarnation == incarnation",
    "return row.owner == member and row.incarnation == incarnation",
)
_OWNER_IN_CORE = Change(
    "group/group_state.py",
    "return row.epoch == epoch and row.owner == member and row.incarnation == incarnation",
    "return row.epoch == epoch",
)

CORE = (
    # --- the core: stale calls ------------------------------------------------------------------
    Mutation(
        "epoch compare on commit and release (core)",
        (_EPOCH_IN_CORE,),
        ("OnlyWithReason", "DurableReplies", "OneOwner"),
        SEEKS,
    ),
    Mutation(
        "outcome compare on release (core)",
        (Change("group/group_coordinator.py", "if outcome is not Outcome.FENCED:", "if True:"),),
        ("OnlyWithReason", "NothingFails"),
        SEEKS,
    ),
    Mutation(
        "incarnation compare of callers",
        (
            Change(
                "group/group_coordinator.py",
                "if known is None or known.member.incarnation != incarnation:",
                "if known is None:",
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
                "group/group_coordinator.py",
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
                "group/group_coordinator.py",
                "if known.phase is MemberPhase.AWAY:\n            raise",
                "if False:\n            raise",
            ),
        ),
        ("ComesToRest", "NothingFails", "NothingLost"),
        ("false_death=15", "grace_share=1", "dismiss_lost=1"),
    ),
    Mutation(
        "leases end",
        (
            Change(
                "group/group_coordinator.py", "if known.until_ms > now.monotonic_ms:", "if True:"
            ),
        ),
        ("ComesToRest",),
        SILENT_CRASHES,
    ),
    Mutation(
        "a live member's lease is renewed",
        (
            Change(
                "group/group_coordinator.py",
                "known.until_ms = max(known.until_ms, now.monotonic_ms + self.settings.lease_ms)",
                "pass",
            ),
        ),
        ("OnlyWithReason", "ComesToRest"),
    ),
    Mutation(
        "a repeated join is a sign of life",
        (
            Change(
                "group/group_coordinator.py",
                "                self._heard(member.member, member.incarnation, now)",
                "                pass",
            ),
        ),
        ("OnlyWithReason", "ComesToRest"),
        ("write_latency_ms=40", "write_records_max=1", "lease_ms=300", "partitions=8"),
    ),
    Mutation(
        "revoke deadlines end",
        (Change("group/group_coordinator.py", "if deadline_ms <= now.monotonic_ms:", "if False:"),),
        ("PromptDeadlines", "ComesToRest"),
        ("hang=10", "join=10"),
    ),
    Mutation(
        "a coordinator that stood still forgives",
        (
            Change(
                "group/group_coordinator.py",
                "if event.registry_away or gap_ms > self.settings.lease_ms // 2:",
                "if event.registry_away:",
            ),
        ),
        ("OnlyWithReason",),
        ("coordinator_freeze=15",),
    ),
    # --- the core: hand-over --------------------------------------------------------------------
    Mutation(
        "asked back before taken",
        (
            Change(
                "group/rebalance.py",
                "builder.revoke(row.partition)",
                'builder.release(row.partition, "taken")',
            ),
        ),
        ("OnlyWithReason",),
        ("join=10",),
    ),
    Mutation(
        "unowned before claimed",
        (
            Change(
                "group/rebalance.py",
                "        if row.owner is not None:\n"
                "            continue\n"
                "        partition = row.partition",
                "        partition = row.partition\n"
                "        if state.target.get(partition) == row.owner:\n"
                "            continue",
            ),
            Change(
                "group/transitions.py",
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
            Change(
                "group/group_coordinator.py", "if done.checkpoint < stored.checkpoint:", "if False:"
            ),
            Change(
                "group/group_state.py",
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
                "group/group_coordinator.py",
                "retarget(builder)\n        builder.finish_leaving()",
                "self.state.target.clear()\n"
                "        retarget(builder)\n"
                "        builder.finish_leaving()",
            ),
        ),
        ("LeastMovement",),
        ("leave=15", "join=10"),
    ),
    Mutation(
        "a restart takes nothing from registered owners",
        (
            Change(
                "group/group_coordinator.py",
                "if known is None or known.member.incarnation != row.incarnation:",
                "if known is not None:",
            ),
        ),
        ("OnlyWithReason",),
        ("coordinator_crash=10",),
    ),
    Mutation(
        "a preparation has a deadline",
        (
            Change(
                "group/group_coordinator.py",
                "if not preparation.ready and preparation.deadline_ms <= now.monotonic_ms:",
                "if False:",
            ),
        ),
        ("ComesToRest",),
        ("prepare_ms=50", "lost=0.3", "join=15"),
    ),
)
