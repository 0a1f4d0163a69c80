"""The `memory:` store of a topology: an actor holds it, so that it outlives the coordinator.

Nothing of it outlives the cluster. `RegistryProxy` is a `RegistryStore` whose methods call that
actor. The coordinator's store thread uses it, so it may block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster.coordinator_client import answer_of
from pxrs_ray.actors.cluster.named_actors import make_actor
from pxrs_ray.config import PxrsConfig
from pxrs_ray.errors import PxrsError, StoreUnavailable
from pxrs_ray.files import Files
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
from pxrs_ray.store import open_store
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.store.registry import RegistryStore, StoreInfo

# A new process, on a machine that has much to do.
START_WAIT_S = 30.0


class RegistryActor:
    """Holds one MemoryStore. A plain actor: its calls keep their order."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the store."""
        return getattr(self._store, method)(*arguments)


class RegistryProxy(RegistryStore):
    """A RegistryStore in the actor of a topology. See the contract in `RegistryStore`."""

    def __init__(self, topology: str, deadline_ms: int) -> None:
        self._deadline_s = deadline_ms / 1_000
        name = names.store(topology)
        self._handle: Any = make_actor(RegistryActor, name, {"get_if_exists": True})
        self._begin()

    def _begin(self) -> None:
        """Wait for an actor that is only starting: a slow start is no outage of the registry."""
        deadline_s, self._deadline_s = self._deadline_s, max(self._deadline_s, START_WAIT_S)
        try:
            self._call("describe")
        finally:
            self._deadline_s = deadline_s

    def _call(self, method: str, *arguments: object) -> Any:
        try:
            # Not ray.get: that warns in an async actor, though this is a thread of its own.
            return self._handle.call.remote(method, *arguments).future().result(self._deadline_s)
        except RayTaskError as error:
            answer = answer_of(error)
            if isinstance(answer, PxrsError):
                raise answer from None
            raise
        except (RayActorError, TimeoutError) as error:
            raise StoreUnavailable(f"the memory store's actor does not answer: {error}") from error

    def create(self) -> str:  # noqa: D102
        found: str = self._call("create")
        return found

    def lead(self, group: str, partitions: int, holder: str) -> Snapshot:  # noqa: D102
        found: Snapshot = self._call("lead", group, partitions, holder)
        return found

    def load(self, group: str) -> Snapshot | None:  # noqa: D102
        found: Snapshot | None = self._call("load", group)
        return found

    def groups(self) -> tuple[str, ...]:  # noqa: D102
        found: tuple[str, ...] = self._call("groups")
        return found

    def write(  # noqa: D102
        self, group: str, generation: Generation, records: Sequence[Record]
    ) -> list[Outcome]:
        found: list[Outcome] = self._call("write", group, generation, records)
        return found

    def renew(  # noqa: D102
        self,
        group: str,
        generation: Generation,
        members: Sequence[tuple[MemberId, Incarnation]],
        lease_ms: int,
    ) -> list[Outcome]:
        found: list[Outcome] = self._call("renew", group, generation, members, lease_ms)
        return found

    def expired(self, group: str) -> tuple[PartitionRow, ...]:  # noqa: D102
        found: tuple[PartitionRow, ...] = self._call("expired", group)
        return found

    def changes(  # noqa: D102
        self, group: str, after_version: int, limit: int = 1_000
    ) -> tuple[Change, ...]:
        found: tuple[Change, ...] = self._call("changes", group, after_version, limit)
        return found

    def trim_changes(self, group: str, generation: Generation, keep: int) -> None:  # noqa: D102
        self._call("trim_changes", group, generation, keep)

    def put_document(  # noqa: D102
        self, group: str, generation: Generation, name: str, text: str
    ) -> Outcome:
        found: Outcome = self._call("put_document", group, generation, name, text)
        return found

    def documents(self, group: str) -> Mapping[str, str]:  # noqa: D102
        found: Mapping[str, str] = self._call("documents", group)
        return found

    def restore(  # noqa: D102
        self, snapshot: Snapshot, changes: Sequence[Change], documents: Mapping[str, str]
    ) -> None:
        self._call("restore", snapshot, changes, documents)

    def remove_group(  # noqa: D102
        self, group: str, generation: Generation | None = None
    ) -> Outcome:
        found: Outcome = self._call("remove_group", group, generation)
        return found

    def describe(self) -> StoreInfo:  # noqa: D102
        found: StoreInfo = self._call("describe")
        return found

    def close(self) -> None:
        """Let go of the actor; it lives on with the topology."""


def open_store_for(config: PxrsConfig) -> RegistryStore:
    """The registry of a topology. Call it on the thread that will use it."""
    url = config.store_url
    Files().make_folder(config.topology_dir)
    if url.partition(":")[0] == "memory":
        return RegistryProxy(config.name, config.store_deadline_ms)
    return open_store(
        url,
        prefix=config.key_prefix,
        deadline_ms=config.store_deadline_ms,
        data_folder=config.topology_dir,
    )
