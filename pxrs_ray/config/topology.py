"""`PxrsConfig`: a whole topology, with its queues and groups resolved."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from pxrs_ray.config import beside, sources
from pxrs_ray.config.declare import (
    NAME_PATTERN,
    PARTITIONS,
    ByteCount,
    Effect,
    Milliseconds,
    MillisecondsOrNone,
    Name,
    option,
)
from pxrs_ray.config.diff import Difference, differences
from pxrs_ray.config.messages import refusal
from pxrs_ray.config.options import GroupConfig, GroupOptions
from pxrs_ray.config.queue_options import QueueConfig, QueueOptions
from pxrs_ray.config.redact import without_secrets
from pxrs_ray.config.replication import ReplicationOptions, replication_problems
from pxrs_ray.config.resolving import Resolved, resolved, said, with_values
from pxrs_ray.data.delay import DELAYED_SUFFIX
from pxrs_ray.data.link_ports import ANY, OFF, PATTERN, link_ports
from pxrs_ray.data.log_limits import MIB
from pxrs_ray.data.reply import REPLIES_SUFFIX
from pxrs_ray.errors import NotFound
from pxrs_ray.model import NOT_FOR_DEAD_LETTERS, PARTITIONS_MAX, Strategy
from pxrs_ray.suggest import did_you_mean

FINGERPRINT_CHARS = 16
DEAD_LETTER_SUFFIX = ".dead"
FOR_SOURCES = (Strategy.MODULO, Strategy.JUMP)
QUARANTINE_INFIX = ".quarantine."

_ENDPOINT = re.compile(r"^https?://[^\s:/,]+:\d{1,5}/?$")


class PxrsConfig(QueueOptions, GroupOptions, ReplicationOptions):
    """A topology. Its queues and groups have taken over what they did not say themselves."""

    name: Name = option("pxrs", "The topology's name, unique in a Ray cluster.", Effect.FIXED)
    prefix: str = option(
        "",
        "A prefix of the name of each queue and group: '{prefix}.{queue}'.",
        Effect.FIXED,
        pattern=rf"^$|{NAME_PATTERN}",
        examples=["", "test", "eu.live"],
    )
    key_prefix: str = option(
        "/pxrs/",
        "A prefix of every key in the registry store.",
        Effect.FIXED,
        pattern=r"^/(\S*/)?$",
        examples=["/pxrs/", "/team/queues/"],
    )
    store: str = option(
        "",
        "The registry store's URL. Left empty: etcd where etcd_endpoints is given, otherwise "
        "SQLite in the data folder.",
        Effect.FIXED,
        pattern=r"^([a-z][a-z0-9+.-]*:\S*)?$",
        examples=["memory:", "sqlite:///data/registry.db", "etcd://host:2379/"],
    )
    etcd_endpoints: str = option(
        "http://localhost:2379", "The etcd members, separated by commas.", Effect.FIXED
    )
    data_dir: Annotated[Path, Field(strict=False)] = option(
        Path("~/.pxrs"), "The folder of partition logs and of the SQLite registry.", Effect.FIXED
    )
    num_partitions: int = option(
        PARTITIONS,
        "The number of partitions of a queue that sets none.",
        Effect.FIXED,
        ge=1,
        le=PARTITIONS_MAX,
    )
    buffers: int | None = option(
        None,
        "The number of buffer actors; None derives it from the CPUs.",
        Effect.FIXED,
        ge=1,
        le=1_024,
    )
    replace_host_after_s: float | None = option(
        None,
        "How long to wait for a host that is away before its disk is given up. Its buffers then "
        "start on another host, and lost_log_policy says what happens to its logs. None waits for "
        "ever. Coordinators count the time by steady clocks: a clock that is set changes nothing, "
        "and time in which no coordinator runs does not count.",
        Effect.COORDINATOR,
        ge=10,
        le=10 * 366 * 24 * 3_600,
    )
    link_ports: str = option(
        ANY,
        "The ports on which a buffer accepts connections of other nodes, at its node's Ray "
        "address. 'any': a free port. A range such as '20000-20100' suits firewalls. 'off': "
        "messages between nodes travel through Ray's calls.",
        Effect.BUFFERS,
        pattern=PATTERN,
        examples=[ANY, OFF, "20000-20100"],
    )
    rebalance_interval_ms: Milliseconds = option(
        10_000,
        "The longest time between two checks for expired leases and deadlines. Values above one "
        "second, or above a tenth of a lease, have no effect: the coordinator checks that often "
        "anyway.",
        Effect.COORDINATOR,
    )
    batch_records_max: int = option(
        100_000,
        "The most messages in one append.",
        Effect.PRODUCERS,
        ge=1,
    )
    batch_bytes_max: ByteCount = option(
        MIB,
        "A producer sends a batch once it has this size.",
        Effect.PRODUCERS,
    )
    linger_ms: MillisecondsOrNone = option(
        0,
        "How long a producer waits at least for a fuller batch. With 0 the first message is sent "
        "at once, and messages that come while it is under way are sent together.",
        Effect.PRODUCERS,
    )
    inflight_appends_max: int = option(
        8,
        "How many unanswered appends a producer may have at one buffer.",
        Effect.PRODUCERS,
        ge=1,
    )
    append_timeout_ms: Milliseconds = option(
        30_000,
        "How long a producer retries one append before it gives up.",
        Effect.PRODUCERS,
    )
    store_deadline_ms: Milliseconds = option(
        5_000,
        "How long one call of the registry store may take.",
        Effect.NEW_COORDINATOR,
    )
    history_keep: int = option(
        10_000, "How many ownership changes a group's history keeps.", Effect.COORDINATOR, ge=1
    )
    queues: dict[Name, QueueConfig] = option({}, "The queues by name.", Effect.BUFFERS)
    groups: dict[Name, GroupConfig] = option({}, "The consumer groups by name.", Effect.COORDINATOR)

    if not TYPE_CHECKING:

        def __init__(self, /, **options: Any) -> None:
            self._fill({}, {}, options)

        __init__.__pydantic_base_init__ = True

    @classmethod
    def from_toml(cls, path: str | Path, **options: Any) -> Self:
        """Read a topology file; environment variables, and then `options`, go before it.

        Raises ConfigError with the line of each wrong option.
        """
        table, origins = sources.read_toml(path)
        config = cls.__new__(cls)
        config._fill(table, origins, options)
        return config

    @classmethod
    def of(cls, options: sources.OptionTable) -> Self:
        """A topology of exactly these options and the defaults: no variable is looked at."""
        config = cls.__new__(cls)
        config._check(options, {})
        return config

    def _fill(self, table: sources.OptionTable, origins: sources.Origins, options: Any) -> None:
        known = {
            kind: [*_names(table.get(kind)), *_names(options.get(kind))] for kind in sources.TABLES
        }
        variables, named = sources.read_environment(os.environ, type(self), known)
        merged = sources.merged(sources.merged(table, variables), options)
        self._check(merged, {**origins, **named})

    def _check(self, options: sources.OptionTable, origins: sources.Origins) -> None:
        try:
            self.__pydantic_validator__.validate_python(options, self_instance=self)
        except ValidationError as error:
            raise refusal(type(self), error, origins) from None

    @model_validator(mode="after")
    def _resolve(self) -> Self:
        queues = {
            name: resolved(queue, self, partitions=self.num_partitions)
            for name, queue in self.queues.items()
        }
        groups = {name: resolved(group, self) for name, group in self.groups.items()}
        for name, group in groups.items():
            if group.failure_policy == "dead_letter" and group.dead_letter_queue is None:
                dead = group.queue + DEAD_LETTER_SUFFIX
                groups[name] = with_values(group, dead_letter_queue=dead)
                if group.queue in queues:
                    # Dead letters have a key, and neither tenant nor label.
                    by_key = {"strategy": "modulo", "tenant_span": 1, "labels": None}
                    spread = by_key if queues[group.queue].strategy in NOT_FOR_DEAD_LETTERS else {}
                    queues.setdefault(
                        dead, with_values(queues[group.queue], **spread, **beside.NOTHING)
                    )
            aside = f"{group.queue}{QUARANTINE_INFIX}{name}"
            if group.failure_policy == "quarantine" and group.quarantine_queue is None:
                groups[name] = with_values(groups[name], quarantine_queue=aside)
            if groups[name].quarantine_queue == aside and group.queue in queues:
                # Also where the group has another policy by now: what is aside is kept.
                queues.setdefault(aside, with_values(queues[group.queue], **beside.SET_ASIDE))
            worked = queues.get(group.queue)
            if worked is not None and worked.source is None and beside.keeps_gaps(group):
                gaps = said(worked, **beside.gap_options(worked))
                queues.setdefault(beside.gaps_queue(group.queue, name), gaps)
        for name, queue in list(queues.items()):
            if queue.replies:
                replies = said(queue, **beside.reply_options(queue))
                queues.setdefault(name + REPLIES_SUFFIX, replies)
            if queue.delays:
                queues.setdefault(name + DELAYED_SUFFIX, said(queue, **beside.tier_options(queue)))
                moved = resolved(beside.mover(self.name, name), self)
                groups.setdefault(name + DELAYED_SUFFIX, moved)
        self.__dict__["queues"] = queues
        self.__dict__["groups"] = groups
        problems = [*self._endpoint_problems(), *self._queue_problems(), *self._group_problems()]
        problems += replication_problems(self)
        if problems:
            raise ValueError("\n  ".join(problems))
        return self

    @field_validator("link_ports")
    @classmethod
    def _are_ports(cls, given: str) -> str:
        link_ports(given)
        return given

    def _endpoint_problems(self) -> list[str]:
        return [
            f"etcd_endpoints = {without_secrets(endpoint)!r}: must be like http://host:2379, "
            "several separated by commas"
            for endpoint in self.etcd_endpoints.split(",")
            if not _ENDPOINT.match(endpoint.strip())
        ]

    def _queue_problems(self) -> list[str]:
        spreads = [
            f"queues.{name}.{problem}"
            for name, queue in self.queues.items()
            for problem in queue.spread_problems()
        ]
        spreads += [
            f"queues.{name}.strategy = {queue.strategy!r}: must be {' or '.join(FOR_SOURCES)}, as "
            "it has a source: each reader must find a message's partition by its key alone"
            for name, queue in self.queues.items()
            if queue.source is not None and queue.strategy not in FOR_SOURCES
        ]
        return spreads + [
            f"queues.{name}.{small} = {getattr(queue, small)}: must be at most {large}, which is "
            f"{getattr(queue, large)}"
            for name, queue in self.queues.items()
            for small, large in (
                ("message_bytes_max", "partition_bytes_max"),
                ("segment_bytes_max", "partition_bytes_max"),
            )
            if getattr(queue, large) is not None and getattr(queue, small) > getattr(queue, large)
        ]

    def _group_problems(self) -> list[str]:
        problems = []
        for name, group in self.groups.items():
            for what in ("queue", "dead_letter_queue", "quarantine_queue"):
                wanted = getattr(group, what)
                if wanted is not None and wanted not in self.queues:
                    hint = did_you_mean(wanted, self.queues) if self.queues else "there are none"
                    problems.append(f"groups.{name}.{what} = {wanted!r}: no such queue; {hint}")
            letters = self.queues.get(group.dead_letter_queue or "")
            if letters is not None and letters.strategy == Strategy.LABEL:
                problems.append(
                    f"groups.{name}.dead_letter_queue = {group.dead_letter_queue!r}: its strategy "
                    "is 'label', and dead letters have none"
                )
            if group.queue in self.queues:
                partitions = self.queues[group.queue].partitions
                aside = self.queues.get(group.quarantine_queue or "")
                if aside is not None and aside.partitions != partitions:
                    problems.append(
                        f"groups.{name}.quarantine_queue: has {aside.partitions} partitions, and "
                        f"must have as many as {group.queue}, which is {partitions}"
                    )
                problems += [
                    f"groups.{name}.static_map: partition {number} is not in 0 to {partitions - 1}"
                    for number in group.static_owners or {}
                    if not 0 <= number < partitions
                ]
        return problems

    def resolved_queue(self, name: str) -> QueueConfig:
        """Everything that holds for one queue. Raises NotFound with the nearest name."""
        return _found("queue", name, self.queues)

    def resolved_group(self, name: str) -> GroupConfig:
        """Everything that holds for one group. Raises NotFound with the nearest name."""
        return _found("group", name, self.groups)

    def queues_of(self, group: str) -> list[str]:
        """The queue that a group works, and those that it puts something into."""
        made = self.groups[group]
        gaps = beside.gaps_queue(made.queue, group)
        names = (made.queue, made.dead_letter_queue, made.quarantine_queue, gaps)
        return [name for name in names if name is not None and name in self.queues]

    def full_name(self, name: str) -> str:
        """The name of a queue or group with the topology's prefix before it."""
        return f"{self.prefix}.{name}" if self.prefix else name

    @property
    def topology_dir(self) -> Path:
        """The folder of this topology's data on each node."""
        return self.data_dir.expanduser() / self.name

    @property
    def replace_host_after_ms(self) -> int | None:
        """The same in milliseconds."""
        after_s = self.replace_host_after_s
        return None if after_s is None else round(after_s * 1_000)

    @property
    def store_url(self) -> str:
        """The registry store's URL, with what was left empty filled in. May hold a password."""
        if self.store:
            return self.store
        if "etcd_endpoints" in self.model_fields_set:
            ends = [end.strip().rstrip("/") for end in self.etcd_endpoints.split(",")]
            scheme = "etcds" if ends[0].startswith("https:") else "etcd"
            hosts = ",".join(end.split("://")[1] for end in ends)
            return f"{scheme}://{hosts}{self.key_prefix}"
        return f"sqlite:///{self.topology_dir / 'registry.db'}"

    def changed(self, **options: Any) -> Self:
        """The same configuration with `options` said otherwise, resolved and checked anew.

        Variables are not looked at: what they said when this one was made is in it.
        """
        return type(self).of(sources.merged(sources.given(self), options))

    def diff(self, other: PxrsConfig) -> tuple[Difference, ...]:
        """What would change from this configuration to `other`, and how it could take effect."""
        return tuple(differences(self, other))

    def fingerprint(self) -> str:
        """A short text that is the same for equal configurations, here and in later versions.

        Passwords do not go into it: it may be shown.
        """
        told = self.model_dump(mode="json", exclude_defaults=True)
        for queue in told.get("queues", {}).values():
            if queue.get("labels"):  # their order is what they mean
                queue["labels"] = list(queue["labels"].items())
        plain = json.dumps(told, sort_keys=True)
        return hashlib.sha256(without_secrets(plain).encode()).hexdigest()[:FINGERPRINT_CHARS]


def _names(table: Any) -> list[str]:
    return list(table) if isinstance(table, Mapping) else []


def _found(kind: str, name: str, known: Mapping[str, Resolved]) -> Resolved:
    if name in known:
        return known[name]
    hint = did_you_mean(name, known) if known else f"the topology declares no {kind}"
    raise NotFound(f"no {kind} {name!r}; {hint}")
