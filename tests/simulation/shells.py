"""Every module of actors/ and spark/: what it decides, and where that is simulated.

Rules of this file. A module is in one table. `SHELLS` carry what a pure machine decides, and the
simulator runs that machine, or one of the small `WORLDS` does. `DECIDE` still decide something
themselves that no simulation of this folder runs as it ships: the text says what, and what stands
in for it. That list only shrinks. All others carry, translate, show or set up, and decide nothing
of a group, a log or a message.
"""

from __future__ import annotations

from collections.abc import Mapping

# Small worlds beside the simulator's, for what has no part in a group.
WORLDS = (
    "tests.simulation.consumers_world",
    "tests.simulation.ends_world",
    "tests.simulation.homes.run",
    "tests.simulation.link_world",
    "tests.simulation.node_world",
    "tests.simulation.recovery_world",
    "tests.simulation.registry_world",
    "tests.simulation.replicas.group",
    "tests.simulation.scaling_world",
    "tests.simulation.start_world",
    "tests.simulation.tenant_world",
    "tests.simulation.source_world",
    "tests.simulation.topology_world",
    "tests.simulation.quarantine_world",
    "tests.simulation.gap_world",
)

SHELLS: Mapping[str, tuple[str, ...]] = {
    "buffer/buffer_actor.py": ("log/log_manager.py",),
    "buffer/lease_gate.py": ("log/lease_term.py",),
    "buffer/log_ownership.py": ("log/read_fence.py", "log/log_manager.py"),
    "buffer/message_calls.py": ("log/buffer_calls.py",),
    "buffer/log_reader.py": ("log/buffer_calls.py", "log/refusals.py"),
    "buffer/log_writer.py": ("log/write_turns.py",),
    "buffer/long_poll.py": ("log/held_calls.py",),
    "buffer/maintenance.py": ("log/upkeep.py",),
    "buffer/coordinator_recovery.py": ("supervision/coordinator_watch.py",),
    "buffer/blocking_buffer_client.py": ("data/call_tries.py",),
    "buffer/buffer_link.py": ("data/link_plan.py",),
    "buffer/call_failure.py": ("data/call_tries.py",),
    "buffer/partition_client.py": ("data/call_tries.py",),
    "buffer/replica_host.py": ("replication/slot_replica.py", "log/disk_life.py"),
    "coordinator/replica_controller.py": ("replication/placements.py",),
    "coordinator/replica_placing.py": ("topology/replica_moves.py", "topology/away_disks.py"),
    "coordinator/replica_followers.py": ("replication/placements.py",),
    "buffer/server_end.py": ("data/link_room.py",),
    "buffer/serving_state.py": ("log/buffer_life.py",),
    "buffer/socket_client.py": ("data/link_plan.py",),
    "client/producer.py": ("producer/sender.py",),
    "client/producer_start.py": ("producer/life_start.py",),
    "client/pulled_partitions.py": ("consumer/pulled_positions.py",),
    "client/tenants.py": ("tenants/followed_routes.py",),
    "cluster/watchdog.py": ("supervision/process_watch.py", "supervision/freeze_detector.py"),
    "cluster/coordinator_client.py": ("supervision/request_tries.py",),
    "consumer/call_record.py": ("processing/alone_gate.py",),
    "consumer/callers.py": ("processing/call_turns.py", "processing/call_apart.py"),
    "consumer/consumer_actor.py": ("consumer/consumer_life.py", "processing/commit_wait.py"),
    "consumer/fetcher.py": ("consumer/fetch_plan.py",),
    "consumer/group_member.py": ("consumer/member_machine.py", "consumer/member_progress.py"),
    "consumer/loop_callers.py": ("processing/call_turns.py", "processing/call_apart.py"),
    "consumer/parallel_worker.py": ("processing/call_turns.py", "processing/key_ordered.py"),
    "consumer/gap_log.py": ("processing/gap_map.py", "processing/numbered_appends.py"),
    "consumer/quarantine_log.py": ("processing/numbered_appends.py",),
    "consumer/redrive.py": ("processing/redrive.py",),
    "coordinator/autoscaler.py": ("scaling/group_scaling.py", "scaling/scaler.py"),
    "coordinator/bootstrap.py": (
        "topology/openings.py",
        "topology/disk_survey.py",
    ),
    "coordinator/buffer_moves.py": ("topology/move_steps.py",),
    "coordinator/buffer_pool.py": ("topology/slot_table.py",),
    "coordinator/buffer_slots.py": ("topology/slot_table.py",),
    "coordinator/buffer_start.py": ("topology/homes.py",),
    "coordinator/drain_watch.py": ("topology/move_steps.py",),
    "coordinator/home_controller.py": (
        "topology/home_rounds.py",
        "topology/homes.py",
    ),
    "coordinator/known_ends.py": ("topology/kept_ends.py",),
    "coordinator/log_witness.py": ("topology/log_witness.py",),
    "consumer/sequential_worker.py": ("processing/in_order.py",),
    "consumer/source_fetcher.py": ("consumer/source_plan.py",),
    "consumer/worker.py": ("consumer/work_queue.py",),
    "consumer/worker_pool.py": ("consumer/worker_roster.py",),
    "coordinator/commands.py": ("supervision/changes_under_way.py",),
    "coordinator/consumer_replicas.py": ("group/replica_count.py",),
    "coordinator/consumer_supervisor.py": ("group/replica_lives.py", "group/replica_life.py"),
    "coordinator/coordinator.py": ("topology/coordinator_start.py", "topology/applying.py"),
    "coordinator/deletion.py": ("topology/removing.py", "topology/tombstones.py"),
    "coordinator/group_controller.py": (
        "topology/coordinator_start.py",
        "topology/told_checkpoints.py",
    ),
    "coordinator/group_creation.py": ("topology/group_making.py",),
    "coordinator/group_host.py": ("group/group_runtime.py", "group/record_writer.py"),
    "coordinator/lead_taking.py": ("topology/log_witness.py", "log/lease_grants.py"),
    "coordinator/leadership.py": ("log/lease_grants.py",),
    "coordinator/member_api.py": ("group/group_coordinator.py",),
    "coordinator/move_planner.py": ("topology/move_plan.py",),
    "coordinator/new_group.py": ("topology/group_making.py",),
    "coordinator/reconfiguration.py": ("group/taking_over.py",),
    "coordinator/registry_actor.py": ("store/memory.py",),
    "coordinator/seeks.py": ("group/seeking.py", "group/seek_plan.py"),
    "coordinator/startup.py": ("supervision/start_tries.py",),
    "coordinator/store_thread.py": (
        "supervision/registry_calls.py",
        "supervision/registry_watch.py",
    ),
    "coordinator/tenant_router.py": ("tenants/tenant_moves.py", "tenants/migration.py"),
}

DECIDE: Mapping[str, str] = {}
DECIDE_MAX = 0

# They wait or try again, and decide nothing by it.
CARRY = (
    "buffer/replica_peers.py",  # what is lost on the way `replication/slot_leader.py` says again
    "buffer/shared_answers.py",
    "consumer/call_gate.py",  # whose limits `group/call_budget.py` judges
    "coordinator/buffer_calls.py",
    "coordinator/metrics.py",
)

SPARK_SHELLS: Mapping[str, tuple[str, ...]] = {
    "appender.py": ("feed/feed_calls.py",),
    "ledger.py": ("feed/facts.py",),
    "python_workers.py": ("feed/feed_round.py",),
    "read.py": ("feed/read_plan.py",),
    "routing.py": ("feed/partition_feed.py",),
    "stream.py": ("feed/facts.py", "feed/feed_run.py"),
    # How often Ray makes a task again is played: feed_driver.py.
    "tasks.py": ("feed/partition_feed.py",),
    "through_raydp.py": ("feed/feed_round.py", "feed/feed_run.py"),
    "write.py": ("feed/feed_run.py",),
}
"""The same for spark/, whose machines the world of feeds runs."""

SPARK_DECIDE: Mapping[str, str] = {
    # Spark itself, which no simulation plays.
    "session.py": "when a session of Spark is there",
}
SPARK_DECIDE_MAX = 1
