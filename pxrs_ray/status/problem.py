"""`Problem`: one thing that is wrong, and what helps. `Report`: what a process says is wrong.

Rules of this file. Each kind of problem has one severity, so that a rule for an alarm can name
kinds. A PROBLEM stops or endangers work; a WARNING does not, or not yet.
"""

from __future__ import annotations

from enum import StrEnum

from pxrs_ray.late_dataclass import dataclass


class Severity(StrEnum):
    """How bad something is. A PROBLEM makes the exit status of `pxrs doctor` 1."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Kind(StrEnum):
    """What is wrong."""

    REGISTRY_AWAY = "registry_away"
    REGISTRY_GOES = "registry_goes"
    REGISTRY_SLOW = "registry_slow"
    REGISTRY_NOT_DURABLE = "registry_not_durable"
    REGISTRY_SETTINGS = "registry_settings"
    GCS_AWAY = "gcs_away"
    COORDINATOR_FILE = "coordinator_file"
    WORK_FAILED = "work_failed"
    BUFFER_AWAY = "buffer_away"
    BUFFER_WAITS = "buffer_waits"
    BUFFER_WITHOUT_DISK = "buffer_without_disk"
    BUFFER_MOVES = "buffer_moves"
    BUFFER_CANNOT_MOVE = "buffer_cannot_move"
    BUFFER_DEPOSED = "buffer_deposed"
    BUFFERS_UNEVEN = "buffers_uneven"
    REPLICAS_BEHIND = "replicas_behind"
    REPLICAS_TOGETHER = "replicas_together"
    DISK_FILLS = "disk_fills"
    DISK_FULL = "disk_full"
    APPENDS_REFUSED = "appends_refused"
    LOGS_FOREIGN = "logs_foreign"
    QUEUE_NOT_OPEN = "queue_not_open"
    LOG_HALTED = "log_halted"
    OFFSETS_LOST = "offsets_lost"
    GROUP_HALTED = "group_halted"
    GROUP_BEHIND = "group_behind"
    GROUP_UNUSED = "group_unused"
    NO_CONSUMER = "no_consumer"
    CONSUMERS_START = "consumers_start"
    CONSUMER_PENDING = "consumer_pending"
    CONSUMER_SILENT = "consumer_silent"
    CONSUMER_FROZEN = "consumer_frozen"
    CONSUMER_FAILED = "consumer_failed"
    PARTITION_FENCED = "partition_fenced"
    PARTITION_STALLED = "partition_stalled"
    PARTITION_HALTED = "partition_halted"
    PARTITIONS_UNOWNED = "partitions_unowned"
    CALL_LONG = "call_long"
    MESSAGES_GIVEN_UP = "messages_given_up"
    KEYS_ASIDE = "keys_aside"
    KEYS_SKEWED = "keys_skewed"
    # What `pxrs doctor` alone can know, because it asks more than the coordinator: DOCTORS.
    SOUND = "sound"
    JAVA_MISSING = "java_missing"
    RAY_AWAY = "ray_away"
    TOPOLOGY_AWAY = "topology_away"
    NODE_AWAY = "node_away"
    NODE_VERSIONS = "node_versions"
    NODE_CLOCK = "node_clock"
    NODE_DISK = "node_disk"
    ORPHAN = "orphan"
    REMAINS = "remains"

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        if self is Kind.SOUND:
            return Severity.OK
        return Severity.WARNING if self in _WARNINGS else Severity.PROBLEM


_WARNINGS = frozenset(
    {
        Kind.REGISTRY_SLOW,
        Kind.REGISTRY_NOT_DURABLE,
        Kind.REGISTRY_SETTINGS,
        Kind.BUFFER_MOVES,
        Kind.BUFFERS_UNEVEN,
        Kind.REPLICAS_BEHIND,
        Kind.REPLICAS_TOGETHER,
        Kind.DISK_FILLS,
        Kind.OFFSETS_LOST,
        Kind.GROUP_BEHIND,
        Kind.GROUP_UNUSED,
        Kind.NO_CONSUMER,
        Kind.CONSUMERS_START,
        Kind.CONSUMER_PENDING,
        Kind.PARTITIONS_UNOWNED,
        Kind.CALL_LONG,
        Kind.MESSAGES_GIVEN_UP,
        Kind.KEYS_ASIDE,
        Kind.KEYS_SKEWED,
        Kind.JAVA_MISSING,
        Kind.NODE_CLOCK,
    }
)
DOCTORS = frozenset(
    {
        Kind.SOUND,
        Kind.JAVA_MISSING,
        Kind.RAY_AWAY,
        Kind.TOPOLOGY_AWAY,
        Kind.NODE_AWAY,
        Kind.NODE_VERSIONS,
        Kind.NODE_CLOCK,
        Kind.NODE_DISK,
        Kind.ORPHAN,
        Kind.REMAINS,
    }
)
# What a topology's own status can show.
OF_A_STATUS = tuple(kind for kind in Kind if kind not in DOCTORS)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: `where`, in words (`text`), and what to do about it (`remedy`)."""

    kind: Kind
    where: str
    text: str
    remedy: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.kind.severity

    def plain(self) -> dict[str, str]:
        """It as programs read it."""
        told = {"kind": self.kind, "severity": self.severity, "where": self.where}
        return {**told, "text": self.text, "remedy": self.remedy}

    def __str__(self) -> str:
        """Where and what, in one line."""
        return self.text if self.text.startswith(self.where) else f"{self.where}: {self.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a process of the topology says is wrong; `buffer` is the buffer that it concerns."""

    kind: Kind
    text: str
    buffer: int | None = None

    def __str__(self) -> str:
        return self.text
