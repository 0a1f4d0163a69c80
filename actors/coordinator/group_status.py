"""Builds the status of queues and groups from what coordinator, buffers and consumers report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pxrs_ray.actors.consumer.consumer_info import ConsumerInfo
from pxrs_ray.actors.coordinator.consumer_replica import stopped_here
from pxrs_ray.clock import monotonic_ms, wall_ms
from pxrs_ray.data.delay import is_of_delays
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.group.transitions import PartitionPhase
from pxrs_ray.group.write_queue import StoredOwner, stored_owners
from pxrs_ray.model import Epoch, MemberId, Offset, PartitionId, PartitionRow
from pxrs_ray.processing.suspects import decode_detail
from pxrs_ray.status.answers import (
    ConsumerStatus,
    GroupStatus,
    PartitionStatus,
    QuarantineSize,
    QueueStatus,
)
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.status.stalls import PAUSES, WINDOW_MS, Stall, StallDetector

if TYPE_CHECKING:
    from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
    from pxrs_ray.actors.coordinator.group_controller import GroupController
    from pxrs_ray.group.group_coordinator import GroupCoordinator

# Whoever asks for a status has it within three seconds, with what did not answer named.
ASK_WAIT_S = 1.0
NAMES_TOLD_MAX = 8


class Observed:
    """What the statuses of a group remember from one to the next."""

    def __init__(self) -> None:
        self.stalls = StallDetector()
        # Of each partition what was told of it, and what of: told again while that is the same.
        self._standings: dict[PartitionId, tuple[tuple[object, ...], PartitionStatus]] = {}

    def standing(
        self,
        controller: GroupController,
        row: PartitionRow,
        checkpoint: Offset,
        end: LogEnds | None,
    ) -> PartitionStatus:
        """A partition of which nothing is on its way to the registry.

        Most sleep, and there may be thousands of them, looked at every few seconds.
        """
        core, number = controller.host.core, row.partition
        refused = controller.logs.refusals.get(number, "")
        now = (row, end, checkpoint, core.state.phase(number), refused)
        known = self._standings.get(number)
        if known is None or any(old is not new for old, new in zip(known[0], now, strict=True)):
            found = _standing(controller, row, {}, checkpoint, end)
            told = replace(found, lag_ms=0 if found.lag == 0 else None, problem=suspected(row))
            known = self._standings[number] = now, told
        return known[1]


def unanswered(
    pool: BufferPool, queue: str, partitions: int, ends: Mapping[PartitionId, LogEnds]
) -> tuple[Report, ...]:
    """Which buffers did not report the ends of their logs, and of which partitions."""
    if pool.is_external(queue):
        return ()
    missing: dict[int, list[str]] = {}
    for partition in range(partitions):
        if partition not in ends:
            missing.setdefault(partition % pool.count, []).append(f"P{partition}")
    return tuple(
        Report(Kind.BUFFER_AWAY, f"{pool.told(index)} does not answer for {_some(those)}", index)
        for index, those in sorted(missing.items())
    )


def _some(names: list[str]) -> str:
    if len(names) <= NAMES_TOLD_MAX:
        return ", ".join(names)
    return f"{', '.join(names[:NAMES_TOLD_MAX])}, ... ({len(names)} partitions)"


def queue_status(
    name: str, partitions: int, ends: Mapping[PartitionId, LogEnds], unknown: tuple[Report, ...]
) -> QueueStatus:
    """One queue at this moment, with what is wrong with its logs, or not known of them."""
    reports = [*unknown]
    reports += [
        Report(Kind.LOG_HALTED, f"P{end.partition} {end.state}: {end.problem}")
        for end in ends.values()
        if end.problem
    ]
    reports += [
        Report(
            Kind.OFFSETS_LOST,
            f"P{end.partition} lost offsets {gap.first} to {gap.end - 1}: {gap.reason}",
        )
        for end in ends.values()
        for gap in end.gaps
    ]
    return QueueStatus(
        name,
        partitions,
        sum(end.end_offset - end.start_offset for end in ends.values()),
        sum(end.bytes for end in ends.values()),
        tuple(reports),
        sum(end.end_offset for end in ends.values()),
    )


def group_status(
    controller: GroupController,
    checkpoints: Mapping[PartitionId, Offset],
    ends: Mapping[PartitionId, LogEnds],
    ages: Mapping[PartitionId, int],
    infos: Mapping[MemberId, ConsumerInfo],
    unknown: tuple[Report, ...] = (),
) -> GroupStatus:
    """One group at this moment. What could not be asked is None, and `unknown` says why."""
    core = controller.host.core
    pending = tuple(controller.host.queue.pending())
    stored = stored_owners(pending)
    # The longest comes first.
    calls = {call.partition: call for info in infos.values() for call in reversed(info.calls)}
    failures = {f.context.partition: f.error for info in infos.values() for f in info.failures}
    now_ms = wall_ms()
    stalls = _stalls(controller, checkpoints, ends)

    def partition(row: PartitionRow) -> PartitionStatus:
        number = row.partition
        end, checkpoint = ends.get(number), checkpoints[number]
        if number not in stored:
            found = controller.observed.standing(controller, row, checkpoint, end)
            if not (number in ages or number in calls or number in failures or number in stalls):
                return found
        else:
            found = _standing(controller, row, stored, checkpoint, end)
        since_ms, call = ages.get(number), calls.get(number)
        lag_ms = max(0, now_ms - since_ms) if since_ms is not None else None
        return replace(
            found,
            lag_ms=0 if found.lag == 0 else lag_ms,
            problem=failures.get(number, "") or suspected(row),
            call_s=call.seconds if call is not None else None,
            call_offset=call.offset if call is not None else None,
            stall=stalls.get(number),
        )

    return GroupStatus(
        controller.spec.topology,
        controller.spec.group,
        controller.spec.queue,
        core.state.generation,
        core.state.version,
        core.settings.assignor,
        core.settings.paused,
        len(controller.replica_set.replicas),
        tuple(partition(row) for row in core.state.rows),
        _consumers(controller, infos, stored),
        _problem(controller),
        _scaling(controller),
        unused_ms=0 if core.state.members else max(0, now_ms - controller.used_ms),
        unknown=unknown,
        records_waiting=sum(record.version > 0 for record in pending),
        registry_away_s=controller.registry_away_s,
        scaled_ms=controller.replica_set.scaled_ms,
    )


def _standing(
    controller: GroupController,
    row: PartitionRow,
    stored: Mapping[PartitionId, StoredOwner],
    checkpoint: Offset,
    end: LogEnds | None,
) -> PartitionStatus:
    """One partition as registry and log have it: whose it is, and how far it is done."""
    owner, _, epoch = stored.get(row.partition, (row.owner, row.incarnation, row.epoch))
    phase = controller.host.core.state.phase(row.partition).value
    if row.partition in stored:
        phase = PartitionPhase.UNOWNED.value if owner is None else PartitionPhase.OWNED.value
    return PartitionStatus(
        row.partition,
        phase,
        owner,
        epoch,
        checkpoint,
        end.end_offset if end is not None else None,
        end.lag(checkpoint) if end is not None else None,
        None,
        row.attempts,
        fenced_by=_fenced_by(row, end, controller.spec.group),
        refused=controller.logs.refusals.get(row.partition, ""),
    )


def _stalls(
    controller: GroupController,
    checkpoints: Mapping[PartitionId, Offset],
    ends: Mapping[PartitionId, LogEnds],
) -> dict[PartitionId, Stall]:
    """Which partitions are stalled while their lag grows."""
    core = controller.host.core
    works = not core.settings.paused and controller.registry_away_s is None
    works = works and not is_of_delays(controller.spec.group, controller.spec.queue)
    seen: dict[PartitionId, tuple[Offset, int | None]] = {}
    for row in core.state.rows:
        if works and row.owner is not None:
            end, checkpoint = ends.get(row.partition), checkpoints[row.partition]
            lag = end.lag(checkpoint) if end is not None else None
            seen[row.partition] = checkpoint, lag
    window_ms = max(WINDOW_MS, PAUSES * core.settings.lease_ms)
    return controller.observed.stalls.note(monotonic_ms(), seen, window_ms)


def _fenced_by(row: PartitionRow, end: LogEnds | None, group: str) -> Epoch | None:
    """The epoch that a log knows above its owner's: one look is enough, for the rows are read
    after the log was asked, and no log hears of an epoch before they have it."""
    known = end.epochs.get(group, 0) if end is not None else 0
    return known if row.owner is not None and known > row.epoch else None


def suspected(row: PartitionRow) -> str:
    """Which message of a partition is said to have killed a process; '' when none is."""
    try:
        _, failing, suspicion = decode_detail(row.checkpoint, row.detail)
    except StoreCorrupted:
        return ""
    for suspect in suspicion.suspects:
        if suspect.alone and suspect.isolated:
            attempt = failing.get(suspect.first, 0)
            return f"offset {suspect.first}, attempt {attempt}: {suspect.told()}"
    return ""


def _problem(controller: GroupController) -> str:
    distrusted = controller.distrusted if controller.replica_set.supervisor is None else ""
    return "; ".join(filter(None, (controller.host.problem, distrusted)))


def _scaling(controller: GroupController) -> str:
    advice = controller.autoscale.advice
    if advice is None:
        return ""
    hot = "" if advice.skew is None else f"; partition {advice.skew} is late alone (skew)"
    return f"{advice.consumers} consumers: {advice.reason}{hot}"


def _consumers(
    controller: GroupController,
    infos: Mapping[MemberId, ConsumerInfo],
    stored: Mapping[PartitionId, StoredOwner],
) -> tuple[ConsumerStatus, ...]:
    core = controller.host.core
    replicas = controller.replica_set.replicas
    now_ms = monotonic_ms()
    owned: dict[MemberId, list[PartitionId]] = {}
    for row in core.state.rows:
        owner = stored[row.partition][0] if row.partition in stored else row.owner
        if owner is not None:
            owned.setdefault(owner, []).append(row.partition)
    found = []
    for member in sorted(replicas.keys() | core.state.members.keys()):
        slot, replica, info = (
            core.state.members.get(member),
            replicas.get(member),
            infos.get(member),
        )
        state = replica.state if replica else slot.phase.value if slot else "gone"
        reason = (replica.reason if replica else "") or (info.problem if info else "")
        if replica is not None and replica.state == "running" and info is None and slot is not None:
            # It has been asked and has not answered: before its lease ends that is silence.
            silent_ms = max(0, core.settings.lease_ms - (slot.until_ms - now_ms))
            state = "silent"
            reason = f"silent for {silent_ms / 1_000:.0f} s, its lease is {_lease(core)}"
        if state == "silent" and replica is not None and (pid := stopped_here(replica)):
            state, reason = "frozen", f"pid {pid} was stopped (SIGSTOP, a debugger); {reason}"
        incarnation = slot.member.incarnation if slot else replica.incarnation if replica else 0
        found.append(
            ConsumerStatus(
                member,
                incarnation,
                state,
                tuple(owned.get(member, ())),
                info.processed if info else None,
                slot.until_ms - now_ms if slot else None,
                info.pid if info else replica.pid or None if replica else None,
                info.node if info else replica.node if replica else "",
                reason,
                info.calls if info else (),
                info.given_up if info else (),
                info.given_up_count if info else 0,
                replica.actor if replica else "",
                info.aside if info else QuarantineSize(),
            )
        )
    return tuple(found)


def _lease(core: GroupCoordinator) -> str:
    return f"{core.settings.lease_ms / 1_000:g} s"
