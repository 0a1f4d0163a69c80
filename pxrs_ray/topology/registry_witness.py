"""`RegistryWitness`: notes on this node's disk which writes the registry had accepted.

A registry that comes back with less than that has lost accepted writes (a server without
persistence, a restored backup). Going on would hand out epochs a second time, so it is refused
until somebody accepts the loss. The acceptance is noted here too, for the one start that goes on
with it; the note then says which generations that start must exceed. Who accepts a loss accepts the
one that was shown: a registry that is lost once more later is not meant. On a node without a note
there is nothing to compare: the registry is believed, and the logs are asked (`LogWitness`).
"""

from __future__ import annotations

import logging
from dataclasses import field, replace
from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.errors import DiskFull, StoreCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Generation

logger = logging.getLogger(__name__)

NAME = "registry-high-water.json"
# The registry's document that says who accepted what it has lost, until a start has gone on with
# it: one that is cut off is gone on with on another node, which has no note of it.
ACCEPTING = "accepting"
RECOVER = "`pxrs recover registry FILE --accept-loss`"


@dataclass(frozen=True, slots=True)
class ShownRegistry:
    """Which registry a coordinator found at its start, and which of its coordinators that was: 0
    where it had come to none. '' is one that knows nothing of the topology, or none at all."""

    registry_id: str = ""
    generation: Generation = 0


@dataclass(frozen=True, slots=True)
class Noted:
    """Registry id ('' where none was seen), per group generation and version, whether what the
    registry lost was accepted (by whom, '' for nobody), how many queues of a name are gone, and
    the topology's id.

    `shown` is the registry whose loss was accepted, as it was then.
    """

    registry_id: str
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    accepted: str = ""
    lives: dict[str, int] = field(default_factory=dict)
    topology_id: str = ""
    shown: ShownRegistry = field(default_factory=ShownRegistry)


NOTED = json_codec(f"node: {NAME}", Noted)


class RegistryWitness:
    """One small file beside the logs.

    A registry that is not `kept` (it lives in the cluster's memory) may be another each time.
    """

    def __init__(
        self,
        folder: Path,
        registry_id: str,
        *,
        kept: bool = True,
        files: Files | None = None,
        strict: bool = False,
    ) -> None:
        """Read the note. Raises StoreCorrupted; OSError where `strict`, and else that is shown."""
        self.problems: list[str] = []
        self._file = folder / NAME
        self._noted = Noted(registry_id)
        self._files = files or Files()
        self._led: set[str] = set()
        self._forgotten: set[str] = set()
        self._kept = kept
        self._unread = False
        self._before = registry_id
        try:
            self._files.make_folder(folder)
            noted = self._read()
        except OSError as error:
            if strict:
                raise
            self._unread = True
            self.problems.append(f"{self._file} cannot be read ({error}): a loss is not noticed")
            return
        if noted is None:
            return
        self._before = noted.registry_id
        other = noted.registry_id not in ("", registry_id)
        if other and not kept:
            return
        if noted.accepted and noted.shown.registry_id not in ("", registry_id):
            noted = replace(noted, accepted="")  # that was another loss
        if other and not noted.accepted:
            raise self._is_another(registry_id)
        self._noted = replace(noted, registry_id=registry_id)

    def _is_another(self, registry_id: str) -> StoreCorrupted:
        return StoreCorrupted(
            f"the registry is not the one that this topology used before (id {registry_id}, before "
            f"{self._before}): it was emptied or replaced. Restore it, or run {RECOVER}: groups "
            "that it does not know begin anew (by their `start`)"
        )

    def led(self, generation: Generation, *, knows: bool) -> None:
        """This coordinator leads; `knows` says that the registry knows the topology, and nobody
        who goes on with a loss. An acceptance that was of another loss is void.

        Raises StoreCorrupted where the registry is another then.
        """
        shown, now = self._noted.shown, self._noted.registry_id
        void = knows if shown.registry_id == "" else generation <= shown.generation
        if not self.accepted or not void:
            return
        if self._before not in ("", now):
            raise self._is_another(now)
        self._write(accepted="")

    def registry_says_so(self) -> None:
        """That its loss is accepted is in the registry: one that knows nothing once more, or is
        another, was not meant."""
        if self.accepted and not self._noted.shown.registry_id:
            self._write(shown=ShownRegistry(self._noted.registry_id))

    def _read(self) -> Noted | None:
        """What the file says; None where there is none, or one that makes no sense."""
        try:
            found: Noted = NOTED.decode(self._files.read_file(self._file))
        except FileNotFoundError:
            return None
        except ValueError as error:
            self.problems.append(f"{self._file} cannot be read ({error}): a loss is not noticed")
            return None
        return found

    def _read_late(self) -> None:
        """Take over what could not be read at the start, so that writing forgets none of it.

        What the registry had lost since is noticed by the next start. Raises OSError.
        """
        before, now = self._read(), self._noted
        self._unread = False
        if before is None or (before.registry_id not in ("", now.registry_id) and not self._kept):
            return
        groups = {g: at for g, at in before.groups.items() if g not in self._forgotten}
        for group, (generation, version) in now.groups.items():
            known = groups.get(group, (0, 0))
            groups[group] = max(known[0], generation), max(known[1], version)
        registry_id = before.registry_id or now.registry_id
        lives = {**before.lives, **now.lives}
        topology_id = before.topology_id or now.topology_id
        self._noted = Noted(registry_id, groups, before.accepted, lives, topology_id, before.shown)

    @property
    def accepted(self) -> str:
        """Who accepted what this registry has lost; '' when nobody did."""
        return self._noted.accepted

    def check(self, group: str, generation: int, version: int) -> None:
        """Compare what `lead` brought with what was noted; raises StoreCorrupted."""
        noted_generation, noted_version = self._noted.groups.get(group, (0, 0))
        if self.accepted:
            return
        if generation <= noted_generation or version < noted_version:
            raise StoreCorrupted(
                f"the registry of {group} went back from generation {noted_generation}, version "
                f"{noted_version} to {generation}, {version}: it has lost accepted writes. Restore "
                f"it, or run {RECOVER} to go on with what it holds (messages are delivered again "
                "from the older checkpoints)"
            )

    def generation(self, group: str) -> int:
        """The highest generation that was noted for a group; 0 when none was."""
        return self._noted.groups.get(group, (0, 0))[0]

    @property
    def topology_id(self) -> str:
        """What the topology was known by before what its registry lost was accepted; '' else.

        The logs go on, so what is kept outside of their messages still counts.
        """
        return self._noted.topology_id if self.accepted else ""

    def note_topology(self, topology_id: str) -> None:
        """The topology is known by this."""
        if self._noted.topology_id != topology_id:
            self._write(topology_id=topology_id)

    def life(self, queue: str) -> int:
        """How many queues of this name were noted as gone."""
        return self._noted.lives.get(queue, 0)

    def note_life(self, queue: str, life: int) -> None:
        """So many queues of this name are gone; the registry says so too, until it is restored."""
        self._write(lives={**self._noted.lives, queue: life})

    def note(self, group: str, generation: int, version: int) -> None:
        """Note the newest durable generation and version. Not synced: a loss weakens the check."""
        self._led.add(group)
        self._forgotten.discard(group)
        self._write(groups={**self._noted.groups, group: (generation, version)})

    def forget(self, group: str) -> None:
        """A group was removed on purpose."""
        self._forgotten.add(group)
        self._write(groups={g: n for g, n in self._noted.groups.items() if g != group})

    def settled(self) -> None:
        """What was accepted is dealt with: from now on nothing may be lost again."""
        if self.accepted:
            # A group that the registry does not know begins anew: above what it had, from 0.
            groups = {
                name: (generation, version if name in self._led else 0)
                for name, (generation, version) in self._noted.groups.items()
            }
            self._write(accepted="", groups=groups)

    def _write(self, **changed: object) -> None:
        """Note it. A disk that takes no note is a problem, shown until it takes one again."""
        self._noted = replace(self._noted, **changed)  # type: ignore[arg-type]
        try:
            if self._unread:
                self._read_late()
            write_note(self._file, self._noted, self._files)
        except (OSError, DiskFull) as error:
            if not self.problems:
                logger.warning("%s: %s", self._file, error)
            self.problems = [f"{self._file} cannot be written ({error}): a loss is not noticed"]
        else:
            self.problems = []


def accept_loss(folder: Path, who: str, shown: ShownRegistry) -> None:
    """Note that the next start shall go on with what this registry holds."""
    Files().make_folder(folder)
    write_note(folder / NAME, replace(noted_in(folder), accepted=who, shown=shown))


def who_accepted(folder: Path) -> str:
    """Who accepted a loss that no start has dealt with yet; '' when nobody did."""
    return noted_in(folder).accepted


def may_begin_again(noted: Noted) -> bool:
    """Whether somebody has accepted that the registry knows nothing."""
    return bool(noted.accepted) and not noted.shown.registry_id


def noted_in(folder: Path) -> Noted:
    """What is noted; nothing where there is no note, or one that makes no sense."""
    try:
        found: Noted = NOTED.decode((folder / NAME).read_bytes())
    except (FileNotFoundError, ValueError):
        return Noted("")
    return found


def write_note(file: Path, noted: Noted, files: Files | None = None) -> None:
    """Replace the note, as a whole. Not synced. Raises OSError, DiskFull."""
    (files or Files()).replace(file, NOTED.encode(noted), sync=False)
