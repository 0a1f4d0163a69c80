"""For each kind of problem that a status can show: a status that shows it, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from pxrs_ray.status.answers import (
    GivenUp,
    GroupStatus,
    PartitionStatus,
    QuarantineSize,
    QueueStatus,
    StoreStatus,
    TopologyStatus,
)
from pxrs_ray.status.places import DEPOSED, SpreadStep
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.status.problems import DAY_MS
from pxrs_ray.status.stalls import Stall
from tests.cli.pictures import buffer_place, group_status, topology_status

STORE = topology_status().store


def first_partition(group: GroupStatus, **changes: object) -> GroupStatus:
    first = replace(group.partitions[0], **changes)  # type: ignore[arg-type]
    return replace(group, partitions=(first, *group.partitions[1:]))


def first_consumer(group: GroupStatus, **changes: object) -> GroupStatus:
    first = replace(group.consumers[0], **changes)  # type: ignore[arg-type]
    return replace(group, consumers=(first, *group.consumers[1:]))


def without_owners(group: GroupStatus) -> GroupStatus:
    def released(partition: PartitionStatus) -> PartitionStatus:
        return replace(partition, owner=None)

    return replace(group, partitions=tuple(map(released, group.partitions)))


def reported(kind: Kind, text: str, buffer: int | None = None) -> TopologyStatus:
    return topology_status(reports=(Report(kind, text, buffer),))


def of_queue(kind: Kind, text: str) -> TopologyStatus:
    return topology_status(queues=(QueueStatus("q", 1, 0, 0, (Report(kind, text),)),))


# For each kind that a status can show: a status that shows it and nothing else, and its words.
ILL: dict[Kind, tuple[TopologyStatus, str]] = {
    Kind.REGISTRY_AWAY: (
        topology_status(store=replace(STORE, away_s=117.0, problem="no answer")),
        "away for 117 s",
    ),
    Kind.REGISTRY_GOES: (
        reported(Kind.REGISTRY_GOES, "the registry is a file on host h, which is drained"),
        "which is drained",
    ),
    Kind.REGISTRY_SLOW: (topology_status(store=replace(STORE, mean_ms=400.0)), "400 ms"),
    Kind.REGISTRY_NOT_DURABLE: (
        topology_status(store=StoreStatus("memory", "memory:", False, 1, 1, 0.1)),
        "does not outlive",
    ),
    Kind.REGISTRY_SETTINGS: (topology_status(store=replace(STORE, warnings=("lru",))), "lru"),
    Kind.GCS_AWAY: (reported(Kind.GCS_AWAY, "gcs: away for 7 s: ..."), "away for 7 s"),
    Kind.COORDINATOR_FILE: (
        reported(Kind.COORDINATOR_FILE, "/x/seal-keys.json cannot be read (EIO)"),
        "cannot be read",
    ),
    Kind.WORK_FAILED: (
        reported(Kind.WORK_FAILED, "buffer 0 (pid 7 on node n): retention of q/0: no space", 0),
        "retention of q/0",
    ),
    Kind.BUFFER_AWAY: (
        reported(Kind.BUFFER_AWAY, "buffer 1 (pid 7 on node ab) does not answer: 2 s", 1),
        "pid 7 on node ab",
    ),
    Kind.BUFFER_WAITS: (
        reported(Kind.BUFFER_WAITS, "buffer 1 waits for host 10.0.0.7, away for 40 s", 1),
        "away for 40 s",
    ),
    Kind.BUFFER_WITHOUT_DISK: (
        reported(Kind.BUFFER_WITHOUT_DISK, "disk ab is not here", 1),
        "is not here",
    ),
    Kind.REPLICAS_BEHIND: (
        reported(Kind.REPLICAS_BEHIND, "buffer 1 has 1 of 2 replicas in sync: not on host x", 1),
        "1 of 2 replicas",
    ),
    Kind.REPLICAS_TOGETHER: (
        reported(Kind.REPLICAS_TOGETHER, "buffer 1 has two replicas in one zone, east", 1),
        "in one zone, east",
    ),
    Kind.BUFFER_MOVES: (
        reported(Kind.BUFFER_MOVES, "buffer 1 moves from host 10.0.0.7 to 10.0.0.8", 1),
        "moves from host",
    ),
    Kind.BUFFER_CANNOT_MOVE: (
        reported(
            Kind.BUFFER_CANNOT_MOVE,
            "buffer 1 cannot leave host 10.0.0.7, which is drained: no room",
            1,
        ),
        "which is drained",
    ),
    Kind.BUFFER_DEPOSED: (
        topology_status(
            places=(buffer_place(0, state=DEPOSED, told="serves coordinator 7 of this topology"),)
        ),
        "serves coordinator 7",
    ),
    Kind.BUFFERS_UNEVEN: (
        topology_status(
            places=(buffer_place(0), buffer_place(1, host="10.0.0.1")),
            uneven=(SpreadStep(1, "10.0.0.1", "10.0.0.2"),),
        ),
        "host 10.0.0.1 has 2, host 10.0.0.2 has none",
    ),
    Kind.DISK_FILLS: (
        topology_status(places=(buffer_place(0, free_bytes=900_000_000),)),
        "has 900.0 MB left",
    ),
    Kind.DISK_FULL: (
        topology_status(places=(buffer_place(0, free_bytes=110_600),)),
        "has 110.6 kB left",
    ),
    Kind.APPENDS_REFUSED: (
        topology_status(
            places=(buffer_place(0, refused=120, last_refusal="P3 of q: PartitionFull('x')"),)
        ),
        "refused 120 appends in the last minutes, the last one of P3 of q: PartitionFull('x')",
    ),
    Kind.LOGS_FOREIGN: (
        reported(Kind.LOGS_FOREIGN, "the logs of buffer 1 were made under another registry", 1),
        "another registry",
    ),
    Kind.QUEUE_NOT_OPEN: (
        reported(Kind.QUEUE_NOT_OPEN, "queue a is not open on buffer 0, and is tried again", 0),
        "is not open",
    ),
    Kind.LOG_HALTED: (of_queue(Kind.LOG_HALTED, "P0 lost: no file"), "P0 lost"),
    Kind.OFFSETS_LOST: (of_queue(Kind.OFFSETS_LOST, "P0 lost offsets 3 to 4: x"), "offsets 3 to 4"),
    Kind.GROUP_HALTED: (topology_status(group_status(problem="odd")), "halted: odd"),
    Kind.GROUP_BEHIND: (topology_status(group_status(lag=10_000)), "minutes behind"),
    Kind.GROUP_UNUSED: (
        topology_status(group_status(lag=5, unused_ms=4 * DAY_MS)),
        "no consumer for 4 days",
    ),
    Kind.NO_CONSUMER: (topology_status(group_status(consumers=0, lag=3)), "360 and no consumer"),
    Kind.CONSUMERS_START: (
        topology_status(
            without_owners(
                first_consumer(
                    group_status(consumers=1, lag=3), state="starting", reason="replaces a dead one"
                )
            )
        ),
        "1 consumers start (billing-0: replaces a dead one)",
    ),
    Kind.CONSUMER_PENDING: (
        topology_status(first_consumer(group_status(), state="pending", reason="no GPU")),
        "no GPU",
    ),
    Kind.CONSUMER_SILENT: (
        topology_status(first_consumer(group_status(), state="silent", reason="frozen")),
        "silent: frozen",
    ),
    Kind.CONSUMER_FROZEN: (
        topology_status(first_consumer(group_status(), state="frozen", reason="pid 7 was stopped")),
        "frozen: pid 7 was stopped",
    ),
    Kind.CONSUMER_FAILED: (
        topology_status(first_consumer(group_status(), state="failed", reason="ImportError")),
        "failed: ImportError",
    ),
    Kind.PARTITION_FENCED: (
        topology_status(first_partition(group_status(), fenced_by=7)),
        "billing-0 owns it under epoch 1, and the log knows epoch 7",
    ),
    Kind.PARTITION_STALLED: (
        topology_status(first_partition(group_status(), stall=Stall(75.0, 30), lag=40)),
        "stalled at offset 100 for 75 s: its lag has grown by 30 to 40, though billing-0",
    ),
    Kind.PARTITION_HALTED: (
        topology_status(first_partition(group_status(), problem="ValueError()")),
        "halted at offset 100: ValueError()",
    ),
    Kind.PARTITIONS_UNOWNED: (
        topology_status(first_partition(group_status(), owner=None)),
        "P0 without an owner, 3 consumers work",
    ),
    Kind.CALL_LONG: (
        topology_status(first_partition(group_status(), call_s=42.0, call_offset=100)),
        "in the same call since 42 s: message 100, attempt 1",
    ),
    Kind.MESSAGES_GIVEN_UP: (
        topology_status(
            first_consumer(
                group_status(),
                given_up_count=3,
                given_up=(
                    GivenUp(4, 2, "dead_letter", 5, "OSError('old')", ago_s=800.0),
                    GivenUp(4, 7, "dead_letter", 5, "ValueError('no')", ago_s=40.0),
                ),
            )
        ),
        "3 messages failed for good, the last one 40 s ago: P4 offset 7 (dead_letter after "
        "attempt 5): ValueError('no')",
    ),
    Kind.KEYS_ASIDE: (
        topology_status(first_consumer(group_status(), aside=QuarantineSize(2, 40))),
        "2 keys are in quarantine, 40 messages wait",
    ),
    Kind.KEYS_SKEWED: (
        topology_status(first_partition(group_status(), end_offset=100_000)),
        "times as many messages as an average partition",
    ),
}
