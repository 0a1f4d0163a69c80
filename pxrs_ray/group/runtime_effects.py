"""What a `GroupRuntime` wants done by whoever runs it: answers to callers, calls of the store.

A caller is anything: it comes back, as it was given, with its answer.
"""

from __future__ import annotations

from pxrs_ray.group.events import Dismiss, FenceReaders, Response
from pxrs_ray.group.write_queue import WriteBatch
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Generation, Incarnation, MemberId

# --- what leaves ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """GroupAnswer a caller. There is no reply for one that only waited."""

    caller: object
    reply: Response | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Raise this at a caller."""

    caller: object
    error: BaseException


@dataclass(frozen=True, slots=True)
class Led:
    """These are durable in the registry now."""

    generation: Generation
    version: int


@dataclass(frozen=True, slots=True)
class Changed:
    """A change of ownership or membership is durable."""


@dataclass(frozen=True, slots=True)
class Faulted:
    """The group has failed. It is loaded again by itself, or halted."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Deposed:
    """A newer coordinator leads the group: this one must end."""

    error: BaseException


# --- calls of the store ---------------------------------------------------------------------------
# Each comes back to `GroupRuntime.answered` with the store's answer, or with what it raised.


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Write a batch under a generation. The call may be made again."""

    generation: Generation
    batch: WriteBatch


@dataclass(frozen=True, slots=True)
class LoadAgain:
    """Read what the store holds: it tells what a refusal of this batch means."""

    batch: WriteBatch


@dataclass(frozen=True, slots=True)
class LeadAgain:
    """Take the group's next generation, unless a newer coordinator leads it."""


@dataclass(frozen=True, slots=True)
class RenewLeases:
    """Write members' leases, for tools that look there while the coordinator is away."""

    generation: Generation
    members: tuple[tuple[MemberId, Incarnation], ...]
    lease_ms: int


@dataclass(frozen=True, slots=True)
class TrimHistory:
    """Forget all but the newest changes."""

    generation: Generation
    keep: int


StoreCall = WriteRecords | LoadAgain | LeadAgain | RenewLeases | TrimHistory
RuntimeEffect = GroupAnswer | Refusal | Led | Changed | Faulted | Deposed
Output = RuntimeEffect | FenceReaders | Dismiss | StoreCall
