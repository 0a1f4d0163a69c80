"""`survey`: what each node's disk holds of a topology, and where its registry is. Pure except
`look_here`, which runs on the node.

Rules of this file. A registry is created only when no node has one and no node has a trace of the
topology: a registry that is not found may be on a host that is away. Only a person chooses between
two registries. Looking creates nothing except, where it is asked for, the disk's id.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from pxrs_ray.errors import RegistryNotHere, StoreCorrupted, UsageError
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.disk_id import make_disk_id, read_disk_id
from pxrs_ray.log.identity import Identity, Terms, read_identity, read_left
from pxrs_ray.log.queues_file import read_queues
from pxrs_ray.model import Generation, Slot
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.topology.homes import SHOWN, RegistryHome

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BUFFERS = ".buffers"
SQLITE = "sqlite:"


@dataclass(frozen=True, slots=True)
class Asked:
    """What to look for: the folders of a topology, and its registry where that is a file.

    With `make`, a folder without an id gets one: it can be a home then.
    """

    topology: str
    data_dir: str
    store_url: str = ""
    key_prefix: str = "/pxrs/"
    make: bool = False

    @property
    def registry(self) -> Path | None:
        """The registry's file; None when it is on a server, or in memory."""
        if not self.store_url.startswith(SQLITE):
            return None
        path = self.store_url.removeprefix("sqlite:///")
        if path in ("", SQLITE) or path.startswith(SQLITE):
            return Path(self.data_dir, self.topology, "registry.db").absolute()
        return Path(path).absolute()


@dataclass(frozen=True, slots=True)
class DiskTrace:
    """What lies beside the logs of a slot: their owner, and the id of each queue."""

    slot: Slot
    identity: Identity
    queues: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry's file: its id ('' when it holds none), how far the topology's coordinators have
    come in it (0: it does not know the topology), and which file it is, so that copies are
    recognised."""

    registry_id: str
    generation: Generation
    file: int = 0


@dataclass(frozen=True, slots=True)
class Looked:
    """What one node's disk holds; `problem` says why it says nothing, or not all. `left` is what
    is noted of logs that were moved away, and removed."""

    disk: str = ""
    boot: str = ""
    registry: Registry | None = None
    traces: tuple[DiskTrace, ...] = ()
    problem: str = ""
    free_bytes: int | None = None
    left: tuple[DiskTrace, ...] = ()

    def terms(self, topology_id: str) -> dict[Slot, Terms]:
        """What it tells of this topology's logs, here or left; of every topology's where the id is
        ''."""
        found: dict[Slot, Terms] = {}
        noted = [(trace, 0) for trace in self.traces]
        noted += [(trace, trace.identity.left_for) for trace in self.left]
        for trace, left in noted:
            if topology_id in ("", trace.identity.topology_id):
                here = trace.identity.terms_on(self.disk)._replace(left=left)
                before = found.get(trace.slot, Terms())
                found[trace.slot] = Terms(*map(max, here, before))
        return found


@dataclass(frozen=True, slots=True)
class SurveyedNode:
    """A node, and what was found there."""

    node: str
    host: str
    looked: Looked

    def __str__(self) -> str:
        disk = f" (disk {self.looked.disk[:SHOWN]})" if self.looked.disk else ""
        return f"host {self.host}{disk}"


def look_here(asked: Asked) -> Looked:
    """Look at this node's disk. Never raises."""
    files, data_dir, problems = Files(), Path(asked.data_dir), []
    boot, disk = "", ""
    registry: Registry | None = None
    traces: tuple[DiskTrace, ...] = ()
    left: tuple[DiskTrace, ...] = ()
    with suppress(OSError):
        boot = BOOT_ID.read_text(encoding="utf-8").strip()
    try:
        disk = (make_disk_id if asked.make else read_disk_id)(files, data_dir)
    except Exception as error:  # noqa: BLE001 - whatever it is, this disk is nobody's home
        problems.append(told(error))
    try:
        registry = _registry(asked)
    except Exception as error:  # noqa: BLE001 - it is there, and does not tell what it is
        problems.append(told(error))
    try:
        traces = _traces(files, data_dir / asked.topology / BUFFERS)
        left = _left(files, data_dir / asked.topology / BUFFERS)
    except Exception as error:  # noqa: BLE001 - as above
        problems.append(told(error))
    free: int | None = None
    with suppress(OSError):
        free = files.free_bytes(data_dir)
    return Looked(disk, boot, registry, traces, "; ".join(problems), free, left)


def _registry(asked: Asked) -> Registry | None:
    from pxrs_ray.store import open_store

    path = asked.registry
    if path is None or not path.exists() or path.stat().st_size == 0:
        return None
    store = open_store(asked.store_url, prefix=asked.key_prefix, data_folder=path.parent)
    try:
        found = store.load(asked.topology)
    except RegistryNotHere:
        return None
    finally:
        store.close()
    return Registry("", found.generation if found is not None else 0, path.stat().st_ino)


def _traces(files: Files, folder: Path) -> tuple[DiskTrace, ...]:
    found = []
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        identity = read_identity(files, each) if each.name.isdigit() else None
        if identity is not None:
            queues = {spec.queue: spec.queue_id for spec in read_queues(files, each)}
            found.append(DiskTrace(int(each.name), identity, queues))
    return tuple(found)


def _left(files: Files, folder: Path) -> tuple[DiskTrace, ...]:
    found = []
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        slot = each.name.removeprefix("left-").removesuffix(".json")
        identity = read_left(files, folder / slot) if slot != each.name and slot.isdigit() else None
        if identity is not None:
            found.append(DiskTrace(int(slot), identity))
    return tuple(found)


def find_registry(topology: str, places: Sequence[SurveyedNode]) -> SurveyedNode | None:
    """The node whose disk has the registry; None when none has.

    One disk may be shown by several nodes: the first is as good as any. Raises StoreCorrupted
    where there are two registries that know the topology.
    """
    has = [place for place in places if place.looked.registry is not None]
    knowing = [p for p in has if p.looked.registry and p.looked.registry.generation] or has[:1]
    one_each: dict[object, SurveyedNode] = {}
    for place in knowing:
        one_each.setdefault(_which(place), place)
    if len(one_each) > 1:
        each = "; ".join(
            f"{place} has come to generation {place.looked.registry.generation}"
            for place in one_each.values()
            if place.looked.registry is not None
        )
        raise StoreCorrupted(
            f"there are {len(one_each)} registries of topology {topology}, and one of them alone "
            f"can be right: {each}. Stop the hosts of the others, or choose one: `pxrs recover "
            "registry FILE --accept-loss --host ADDRESS` goes on with that host's"
        )
    return next(iter(one_each.values()), None)


def _which(place: SurveyedNode) -> object:
    registry = place.looked.registry
    return place.looked.disk or (registry.file if registry is not None else place.node)


def chosen(
    topology: str, places: Sequence[SurveyedNode], host: str
) -> tuple[SurveyedNode, list[SurveyedNode]]:
    """The registry on a host that somebody has chosen, and the others, which are to be set aside.

    Raises UsageError when there is none on that host.
    """
    knows = [p for p in places if p.looked.registry is not None and p.looked.registry.generation]
    mine = [place for place in knows if place.host == host]
    if not mine:
        told = ", ".join(place.host for place in knows) or "none that lives"
        raise UsageError(
            f"host {host} has no registry of topology {topology}; those that have: {told}"
        )
    others = {_which(place): place for place in knows if _which(place) != _which(mine[0])}
    return mine[0], list(others.values())


def set_aside(asked: Asked) -> list[str]:
    """Give this node's registry file, with what belongs to it, other names; answer them."""
    path, made, files = asked.registry, [], Files()
    mark = uuid.uuid4().hex[:SHOWN]
    for file in sorted(path.parent.glob(f"{path.name}*")) if path is not None else ():
        if ".aside-" not in file.name:
            aside = file.with_name(f"{file.name}.aside-{mark}")
            files.rename(file, aside)
            made.append(str(aside))
    return made


def check_unknown(topology: str, places: Sequence[SurveyedNode]) -> None:
    """Raise RegistryNotHere when a disk knows the topology: its registry is not to be begun."""
    known = [(place, trace) for place in places for trace in place.looked.traces]
    if not known:
        return
    place, trace = max(known, key=lambda one: one[1].identity.generation)
    identity = trace.identity
    if identity.registry_host:
        home = RegistryHome(identity.registry_disk, "", identity.registry_host)
        is_away = identity.registry_disk not in {p.looked.disk for p in places}
        raise not_here(topology, home, is_away=is_away)
    raise RegistryNotHere(
        f"{place} has logs of topology {topology}, and there is no registry of it: {_REMEDY}"
    )


_REMEDY = (
    "bring it back, or run `pxrs recover registry FILE --accept-loss` to begin without it "
    "(messages are delivered again, from the first that is kept)"
)


def not_here(topology: str, home: RegistryHome | None, *, is_away: bool) -> RegistryNotHere:
    """The error of a registry that is not where it was left."""
    if home is None:
        return RegistryNotHere(
            f"the registry knows nothing of topology {topology}, and was not emptied by us: "
            f"{_REMEDY}"
        )
    if is_away:
        return RegistryNotHere(
            f"the registry of {topology} lies on {home}, which is away: start that host; or run "
            "`pxrs recover registry FILE --accept-loss` to begin without it (messages are "
            "delivered again, from the first that is kept)"
        )
    return RegistryNotHere(
        f"the registry of {topology} lay on {home}, and is there no more: {_REMEDY}"
    )


def begins_at(places: Sequence[SurveyedNode], head: str) -> SurveyedNode | None:
    """Where a registry that is begun gets its home: the head node, or else the first by address.

    None when no node can keep it.
    """
    fit = [place for place in places if place.looked.disk and not place.looked.problem]
    return min(fit, key=lambda p: (p.node != head, p.host, p.node), default=None)
