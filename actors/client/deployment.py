"""`Deployment`: makes a running topology match a topology file, and lists the changes first.

    deployment = Deployment.of("payments.toml")
    for line in deployment.changes(): ...
    topology = deployment.carry_out()

Rules of this file. Repeating it changes nothing. A difference that a running topology cannot take
is an error before anything is touched. Actors import the job's code from the runtime environment in
which the coordinator was made. When the job brings other code, the coordinator is replaced (which
moves no partition), and then each group's consumers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.client.topology import Topology, deploy
from pxrs_ray.actors.cluster.coordinator_placement import single_point
from pxrs_ray.actors.cluster.join import join
from pxrs_ray.actors.cluster.named_actors import actors_of
from pxrs_ray.clock import wall_ms
from pxrs_ray.config import PxrsConfig
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.status.started import not_started
from pxrs_ray.status.units import clock_text
from pxrs_ray.store import open_store

if TYPE_CHECKING:
    from pxrs_ray.config import GroupConfig
    from pxrs_ray.status.answers import GroupStatus

SHORT = 16
# A process that imports a handler on a machine that is busy takes longer than a start waits.
STARTS_WAIT_S, STARTS_LOOK_S = 20.0, 0.5
# These are where the coordinator is, and nowhere else.
OF_THE_COORDINATOR = ("memory:", "sqlite:")


@dataclass(frozen=True, slots=True)
class Drift:
    """A group whose number of consumers an operator has set, and the file rules again."""

    name: str
    group: GroupConfig
    runs: int
    since_ms: int

    def __str__(self) -> str:
        by_hand = f"scaled by hand at {clock_text(self.since_ms)}"
        if self.group.scaling is not None:
            return f"groups.{self.name}: {self.runs} consumers, {by_hand} -> as the load says"
        return f"groups.{self.name}: {self.runs} consumers, {by_hand} -> {self.group.consumers}"

    def go_back(self, topology: Topology) -> None:
        """Have as many as the file says."""
        group = topology.group(self.name)
        if self.group.scaling is not None:
            group.release_scale()
        else:
            group.scale(self.group.consumers)


@dataclass(slots=True)
class Deployment:
    """A topology file, compared with what runs now."""

    config: PxrsConfig
    file: str
    sha256: str
    code: str
    _before: dict[str, Any] = field(default_factory=dict)
    _runs: bool = False
    # The consumers that had not started when `carry_out` was over, a line each.
    late: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, path: str | Path, **options: Any) -> Deployment:
        """Read the file, and look at what runs under its name.

        Raises ConfigError with the line of each wrong option, UsageError without Ray, and
        StoreUnavailable when a new topology's store does not answer.
        """
        config = PxrsConfig.from_toml(path, **options)
        join()
        made = cls(config, str(path), hashlib.sha256(Path(path).read_bytes()).hexdigest(), _code())
        made._runs = names.coordinator(config.name) in actors_of(config.name)
        if made._runs:
            made._before = Topology(config.name).deployed()
        else:
            _try_store(config)
        return made

    def changes(self) -> list[str]:
        """What `carry_out` would change, a line each; nothing when all is as the file says.

        Raises UsageError naming every option that cannot change on a running topology.
        """
        return list(self._changes())

    def _changes(self) -> Iterator[str]:
        config = self.config
        if not self._runs:
            yield f"start topology {config.name}"
            for name, queue in config.queues.items():
                yield f"open queue {config.full_name(name)}: {queue.partitions} partitions"
        else:
            for difference in Topology(config.name).apply(config, dry_run=True):
                yield str(difference)
            if self._new_code:
                yield f"code: {self._before.get('code') or 'none'} -> {self.code or 'none'}"
            for drift in self._drifts():
                yield str(drift)
        for name in self._groups_to_start():
            group = config.groups[name]
            yield (
                f"start group {config.full_name(name)}: {group.consumers} consumers of queue "
                f"{config.full_name(group.queue)} call {group.handler}"
            )

    def _drifts(self) -> list[Drift]:
        """Groups whose number of consumers an operator has set, otherwise than the file does."""
        if not self._runs:
            return []
        to_start = self._groups_to_start()
        return [
            Drift(name, group, found.wanted, found.scaled_ms)
            for name, group in self.config.groups.items()
            if name not in to_start
            and (found := self._running_groups().get(self.config.full_name(name))) is not None
            and found.scaled_ms is not None
            and (group.scaling is not None or found.wanted != group.consumers)
        ]

    def _running_groups(self) -> dict[str, GroupStatus]:
        return {group.group: group for group in Topology(self.config.name).status().groups}

    def stays(self) -> list[str]:
        """What runs and the file does not say, a line each: it stays until somebody changes it."""
        if not self._runs:
            return []
        now = Topology(self.config.name).config
        paused = [
            f"group {name} is paused, and stays so: `pxrs resume {name}`"
            for name, group in self._running_groups().items()
            if group.paused
        ]
        return paused + [
            f"{kind} {name} stays, though {self.file} does not name it: `pxrs {kind} delete "
            f"{name}` removes it"
            for kind, have, wanted in (
                ("group", now.groups, self.config.groups),
                ("queue", now.queues, self.config.queues),
            )
            for name in sorted(have.keys() - wanted.keys())
        ]

    @property
    def _new_code(self) -> bool:
        return self._runs and self._before.get("code", "") != self.code

    def _groups_to_start(self) -> list[str]:
        """Groups whose consumers must be started: none run, or they run another handler or code."""
        wanted = {name: group for name, group in self.config.groups.items() if group.handler}
        if not self._runs or self._new_code:
            return list(wanted)
        started = self._before.get("handlers", {})
        have = {name: group.wanted for name, group in self._running_groups().items()}
        return [
            name
            for name, group in wanted.items()
            if started.get(name) != group.handler
            or (group.consumers > 0 and not have.get(self.config.full_name(name)))
        ]

    def single_point(self) -> str:
        """What a registry in a file means on a cluster of several nodes, in one line; or ''."""
        return single_point(self.config)

    def carry_out(self) -> Topology:
        """Make it so, and keep which file it was; answers the topology.

        Raises HandlerError where a consumer cannot start. Those that are slow are in `late`.
        """
        to_start, drifts = self._groups_to_start(), self._drifts()
        topology = deploy(self.config, anew=self._new_code)
        for drift in drifts:
            drift.go_back(topology)
        for name, group in self.config.groups.items():
            found = topology.group(name)
            if name in to_start:
                if self._new_code:
                    found.stop()
                found.start(group.handler, consumers=group.consumers)
        # A process that is slow to start was not waited for: it may find yet that it cannot.
        self.late = _await_starts(topology, {self.config.full_name(name) for name in to_start})
        topology.note_deployed(
            {
                "file": self.file,
                "sha256": self.sha256,
                "fingerprint": self.config.fingerprint(),
                "code": self.code,
                "queues": sorted(self.config.queues),
                "groups": sorted(self.config.groups),
                "handlers": {n: g.handler for n, g in self.config.groups.items() if g.handler},
                "at_ms": wall_ms(),
            }
        )
        return topology


def _await_starts(topology: Topology, started: set[str]) -> list[str]:
    """Wait for these groups' consumers; answers which have not started in time."""
    until_s = monotonic() + STARTS_WAIT_S
    while started:
        late = not_started(topology.status().groups, started)
        if not late or monotonic() >= until_s:
            return late
        sleep(STARTS_LOOK_S)
    return []


def _try_store(config: PxrsConfig) -> None:
    """Raise what is wrong with a store on the network now, not when a coordinator waits for it."""
    if config.store_url.startswith(OF_THE_COORDINATOR):
        return
    store = open_store(
        config.store_url, prefix=config.key_prefix, deadline_ms=config.store_deadline_ms
    )
    try:
        store.create()
    finally:
        store.close()


def _code() -> str:
    """What names the code that this job brings along; '' when actors use what is installed."""
    environment = ray.get_runtime_context().runtime_env
    told = {key: environment.get(key) for key in ("working_dir", "py_modules", "pip", "uv")}
    if list(filter(None, told.values())) == [told["working_dir"]]:
        return Path(str(told["working_dir"])).stem.removeprefix("_ray_pkg_")
    if not any(told.values()):
        return ""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:SHORT]
