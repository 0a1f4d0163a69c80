"""`RegistryStore`: where ownership, checkpoints and epochs live. These docstrings are the contract.

Rules of this file. A store keeps, per *group* (an opaque name of 1 to 200 characters that the
topology chooses): a generation, a fixed number of partition rows, members with leases, a
numbered history, and a few small documents. Stores decide nothing: they compare and set.

* Every mutator is conditional on the caller's `generation` being the group's newest, compared
  in the store in the same atomic step as the change.
* Every mutator is idempotent by its post-state: when the stored state is already exactly what
  the call would make, the answer is `APPLIED`. A write that lands late or twice does no harm.
* Three ways out: applied, refused (`FENCED` or `BEHIND`), or unknown. Unknown is raised as
  `StoreUnavailable` once `deadline_ms` has passed, never told as a refusal. A store retries
  passing faults itself inside the deadline, always with the very same conditional write.
* Lease time is the store's own clock; a client's clock is never compared with it.
* No owner is None, stored as NULL or absence, never as ''.
* What does not exist (a group, a partition, a member) is `FENCED`, not an error. A stored
  generation below the caller's is a registry that lost writes: `StoreCorrupted`.
* A store is safe to use from several threads. It is not picklable: make it where it is used.
* Passwords appear in no error, log, repr or `describe()`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field

from pxrs_ray.closing import Closing
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import (
    Change,
    Generation,
    Incarnation,
    MemberId,
    Outcome,
    PartitionRow,
    Record,
    Snapshot,
)

DETAIL_CHARS_MAX = 2_000
GROUP_CHARS_MAX = 200
MEMBER_CHARS_MAX = 200
DOCUMENT_CHARS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store's description of itself. `url` has every secret replaced; `warnings` are for
    people."""

    backend: str
    url: str
    durable: bool
    warnings: tuple[str, ...] = field(default=())


class RegistryStore(Closing):
    """A registry of groups. See the rules at the head of this file."""

    @abstractmethod
    def create(self) -> str:
        """Make or upgrade the schema, and return the registry's id.

        Idempotent and safe to race. The id is random, made once with the schema; a registry
        that lost its data comes back with another id, which is how a loss is noticed.

        Raises StoreSchemaError when the stored schema is newer than this code.
        """

    @abstractmethod
    def lead(self, group: str, partitions: int, holder: str) -> Snapshot:
        """Become the one writer of `group`: take the next generation, and return its state.

        One atomic step: make the group with `partitions` rows of defaults when it is new, raise
        its generation by one, stamp that on every row, append a 'led' entry by `holder` to the
        history, and read everything. After it returns, no write of an older generation can
        change a row, including one that was already under way.

        Raises UsageError when the group exists with another number of partitions.
        """

    @abstractmethod
    def load(self, group: str) -> Snapshot | None:
        """Read one consistent snapshot of `group` without leading it; None when there is none."""

    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """Name every group in this registry, sorted."""

    @abstractmethod
    def write(self, group: str, generation: Generation, records: Sequence[Record]) -> list[Outcome]:
        """Apply `records` in order, each conditionally (see `Write` and `MemberWrite`).

        Answers one outcome a record, in order. A refused record does not stop the others. Each
        record is atomic with its history entry; several records for one partition take effect
        in the order given. `BEHIND` is a COMMIT whose owner, incarnation and epoch are right
        but whose checkpoint is below the stored one; everything else that is refused is
        `FENCED`. With a generation that is not the newest, every outcome is `FENCED`.
        """

    @abstractmethod
    def renew(
        self,
        group: str,
        generation: Generation,
        members: Sequence[tuple[MemberId, Incarnation]],
        lease_ms: int,
    ) -> list[Outcome]:
        """Extend the leases of `members` to `lease_ms` from the store's now; one outcome each.

        `FENCED` when the member is absent, of another incarnation, or its lease is already over.
        """

    @abstractmethod
    def expired(self, group: str) -> tuple[PartitionRow, ...]:
        """The owned partitions whose owner is deregistered or whose owner's lease is over.

        Owners are compared by id and incarnation. Judged by the store's clock, sorted by
        partition. A member that joins again, also as the same incarnation, starts a new lease.
        """

    @abstractmethod
    def changes(self, group: str, after_version: int, limit: int = 1_000) -> tuple[Change, ...]:
        """The history entries with a version above `after_version`, oldest first, up to `limit`.

        Entries that were trimmed are skipped silently: the first version tells.
        """

    @abstractmethod
    def trim_changes(self, group: str, generation: Generation, keep: int) -> None:
        """Forget all but the newest `keep` history entries; versions go on from where they were.

        Does nothing when `generation` is not the newest.
        """

    @abstractmethod
    def put_document(self, group: str, generation: Generation, name: str, text: str) -> Outcome:
        """Keep `text` (at most DOCUMENT_CHARS_MAX characters) under `name`; '' removes it."""

    @abstractmethod
    def documents(self, group: str) -> Mapping[str, str]:
        """Every document of `group` by name."""

    @abstractmethod
    def restore(
        self, snapshot: Snapshot, changes: Sequence[Change], documents: Mapping[str, str]
    ) -> None:
        """Write a whole group as given, for moving a stopped registry; leases count as over.

        Raises AlreadyExists when the group exists here; nothing is written then.
        """

    @abstractmethod
    def remove_group(self, group: str, generation: Generation | None = None) -> Outcome:
        """Forget everything of `group`; an absent group is `APPLIED`.

        With a `generation` it is conditional as every other change is, in one atomic step:
        `FENCED`, and nothing is removed, when that is not the newest. None is for tools that
        know that nobody leads it.
        """

    @abstractmethod
    def describe(self) -> StoreInfo:
        """Say what this store is and what to worry about, without secrets.

        Never asks the server: what only it knows is known after `create`.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back every connection, thread and lease; calling it again is harmless."""
