"""`TenantDirectory`: from (service, tenant, entity) to the queue and partition of a message.

Rules of this file. The system tenant (`None`) is never isolated. An isolated tenant's queue is
`{queue}.isolated.{tenant}` and has the partitions of the tenant's profile; within a queue the
entity decides, so each entity stays in order. A server that is assigned to profiles serves only
the isolated tenants of those; one that is assigned to none serves the shared queues. Where no
server is assigned to a tenant's profile, the shared ones serve it too, and that is an alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from pxrs_ray.errors import ConfigError, NotFound
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.partitioning.hashes import hash_key
from pxrs_ray.suggest import did_you_mean

ISOLATED = ".isolated."


@dataclass(frozen=True, slots=True)
class TenantProfile:
    """How tenants of a profile are served. `weight` is their share in shared partitions.

    `resources` are Ray's: the consumers of its isolated tenants run where there are such.
    """

    name: str
    isolated: bool = False
    partitions: int = 4
    consumers: int = 1
    weight: float = 1.0
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.partitions < 1 or self.consumers < 0 or self.weight <= 0:
            raise ConfigError(f"a profile needs partitions and a weight above 0, got {self}")


@dataclass(frozen=True, slots=True)
class Service:
    """A kind of work: its queue, and how many partitions that has."""

    name: str
    queue: str
    partitions: int
    prefix: str = ""
    hash_name: str = "xxh64"

    @property
    def notifications(self) -> str:
        """The queue whose messages reach every server of the service."""
        return self._full(f"{self.queue}.notifications")

    def full_queue(self, tenant: str | None) -> str:
        """The name of the queue for a tenant that is isolated, or for all others (None)."""
        return self._full(self.queue if tenant is None else isolated_queue(self.queue, tenant))

    def group(self, tenant: str | None, partition: int | None = None) -> str:
        """The name of the group that reads it, or of the one consumer of one partition.

        As in a cluster of services; a group of `Tenants` is the service itself: `own_group`.
        """
        aside = "" if tenant is None else f"-isolated-{tenant}"
        number = "" if partition is None else f"-{partition}"
        return self._full(f"{self.name}.{self.queue}{aside}-consumer{number}")

    def own_group(self, tenant: str | None) -> str:
        """The group that `Tenants` has for a tenant's own queue, or the one of all others."""
        return self._full(self.name if tenant is None else isolated_queue(self.name, tenant))

    def _full(self, name: str) -> str:
        return f"{self.prefix}.{name}" if self.prefix else name


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a message goes. `tenant` is set where the queue is its own."""

    service: str
    queue: str
    tenant: str | None
    partition: int

    @property
    def full_name(self) -> str:
        """The partition, by the name that tools and logs know it under."""
        return f"{self.queue}.{self.partition}"


@dataclass(frozen=True, slots=True)
class Serving:
    """Who serves a tenant's queue; `alarm` says what is wrong with that, if anything is."""

    servers: tuple[str, ...]
    alarm: str = ""


def isolated_queue(queue: str, tenant: str) -> str:
    """The name of a tenant's own queue."""
    return f"{queue}{ISOLATED}{tenant}"


@dataclass(frozen=True)
class TenantDirectory:
    """Services, profiles, and the profile of each tenant that has one."""

    services: Mapping[str, Service]
    profiles: Mapping[str, TenantProfile] = field(default_factory=dict)
    tenants: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tenant, profile in self.tenants.items():
            if profile not in self.profiles:
                hint = did_you_mean(profile, self.profiles)
                raise ConfigError(f"tenant {tenant!r} has the profile {profile!r}: {hint}")

    def profile(self, tenant: str | None) -> TenantProfile:
        """The profile of a tenant; one that was given none is shared, like all others."""
        name = self.tenants.get(tenant) if tenant is not None else None
        return self.profiles[name] if name is not None else TenantProfile("shared")

    def isolated(self, tenant: str | None) -> bool:
        """Whether a tenant has queues of its own."""
        return tenant is not None and self.profile(tenant).isolated

    def resolve(self, service: str, tenant: str | None, entity: bytes | str) -> Destination:
        """Where a message about `entity` of `tenant` goes. Raises NotFound for the service."""
        if service not in self.services:
            hint = did_you_mean(service, self.services)
            raise NotFound(f"no service {service!r}: {hint}")
        found = self.services[service]
        owner = tenant if self.isolated(tenant) else None
        count = self.profile(tenant).partitions if owner is not None else found.partitions
        partition = Partitioner(count, hash_name=found.hash_name).partition(entity)
        return Destination(service, found.full_queue(owner), owner, partition)

    def serving(self, tenant: str | None, servers: Mapping[str, Sequence[str]]) -> Serving:
        """Which of `servers` (each with the profiles it is assigned to) serve a tenant's queue."""
        regular = tuple(sorted(name for name, profiles in servers.items() if not profiles))
        if not self.isolated(tenant):
            alarm = (
                "" if regular else "every server is assigned to profiles: nobody serves the rest"
            )
            return Serving(regular, alarm)
        profile = self.profile(tenant).name
        own = tuple(sorted(name for name, profiles in servers.items() if profile in profiles))
        if own:
            return Serving(own)
        told = "the shared ones serve it too" if regular else "and there is no shared one either"
        return Serving(
            regular,
            f"isolated tenant {tenant!r}: no server is assigned to its profile {profile!r}, {told}",
        )

    def responsible(
        self, tenant: str | None, partition: int, servers: Mapping[str, Sequence[str]]
    ) -> str | None:
        """The one server for a partition: (hash of the tenant + partition) mod servers."""
        found = self.serving(tenant, servers).servers
        if not found:
            return None
        return found[(hash_key(tenant or "") + partition) % len(found)]
