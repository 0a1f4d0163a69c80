"""The owner of a buffer's folder: the `topology_id` of the registry under which its logs were
made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pxrs_ray.codec import json_codec
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Generation

NAME = "identity.json"
LEFT = "left-{}.json"

Age = tuple[int, Generation]
"""A term, and within that a coordinator's generation."""


class Terms(NamedTuple):
    """What a disk tells of a slot: the newest term under which logs were `served` from it, the
    newest that anything there is `told` of, and the newest that logs were removed from it for,
    because they had `left` for a home of that term."""

    served: int = 0
    told: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """What a buffer's folder notes next to the logs.

    `generation` is the highest of a coordinator that it belonged to; `leader` distinguishes that
    coordinator from another with the same number. `registry_disk` and `registry_host` are the home
    of a registry that is on a disk; '' when they are not known. `term` is the highest that these
    logs were let to serve under, `moves` how many times they had been moved. Logs that were copied
    to another home know of that move, and by `left_for` of that home's term. `disk` is where they
    were served from last: a copy that never served names the disk that it was made of.
    """

    topology_id: str
    generation: Generation = 0
    leader: str = ""
    registry_disk: str = ""
    registry_host: str = ""
    term: int = 0
    moves: int = 0
    left_for: int = 0
    disk: str = ""

    def is_behind(self, known: Identity) -> bool:
        """Whether `known`, which was noted here, tells more than the registry of this knows: it
        comes from a later leader, or from a later home of these logs."""
        return known.topology_id == self.topology_id and (
            known.generation > self.generation
            or (known.generation == self.generation > 0 and known.leader != self.leader)
            or known.term > self.term
            or known.moves > self.moves
        )

    @property
    def age(self) -> Age:
        """Of two copies of a slot's logs, the one that was served from last has the higher one."""
        return self.term, self.generation

    def terms_on(self, disk: str) -> Terms:
        """What these logs, or the note that they have left, tell of their terms on a disk."""
        served = self.term if self.disk == disk else 0
        return Terms(served, max(self.term, self.left_for))


IDENTITY = json_codec("log: identity.json", Identity)


def read_identity(files: Files, folder: Path) -> Identity | None:
    """What is noted in `folder`, None when nothing is. Raises LogCorrupted."""
    path = folder / NAME
    try:
        found: Identity = IDENTITY.decode(files.read_file(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LogCorrupted(
            f"{path}: does not tell whose logs these are ({error}): remove it if they are yours"
        ) from error
    return found


def write_identity(files: Files, folder: Path, identity: Identity) -> None:
    """Note whose logs lie in `folder`, durably. Raises OSError, DiskFull."""
    files.replace(folder / NAME, IDENTITY.encode(identity), sync=True)


def step_back(
    files: Files, folder: Path, generation: Generation, left_for: int, moves: int
) -> None:
    """Have it noted in `folder`, whose logs are closed and about to be copied, that they belonged
    to the coordinator before `generation`, and left for a home of the term `left_for`, by the move
    that makes it `moves`.

    Whichever of the two copies is served from next notes the coordinator that lets it: so of two
    copies, the one that was served from last is the one that knows the newer coordinator, also
    where both were served under one. And a registry that knows nothing of that move is an older
    one: it would have this copy served. Done twice it changes nothing. Raises OSError, DiskFull.
    """
    known = read_identity(files, folder)
    if known is None:
        return
    before = generation - 1 if known.generation == generation > 0 else known.generation
    left = replace(known, generation=before, moves=moves, left_for=left_for)
    write_identity(files, folder, left)


def belong(files: Files, folder: Path, claim: Identity, *, adopt: bool) -> Identity:
    """Note in `folder` whose logs these are, and who leads; with `adopt` in place of what is noted.

    Answers what was noted before, and `claim` where nothing was. A claim of another topology, or of
    one that is behind what is noted, changes nothing without `adopt`. Logs that were moved away,
    and removed, have left a note: so nobody takes for new what an older registry looks for here.
    Raises LogCorrupted, OSError, DiskFull.
    """
    files.make_folder(folder)
    known = read_identity(files, folder)
    if known is None and not adopt:
        left = read_left(files, folder)
        if left is not None and claim.is_behind(left):
            return left
    foreign = known is not None and known.topology_id != claim.topology_id
    if known != claim and (adopt or known is None or not (foreign or claim.is_behind(known))):
        write_identity(files, folder, claim)
    return known or claim


def note_left(files: Files, folder: Path) -> None:
    """Note beside `folder`, whose logs are about to be removed, for which home they left, durably.

    Raises LogCorrupted, OSError, DiskFull.
    """
    known = read_identity(files, folder)
    if known is not None and known.left_for > known.term:
        files.replace(_left(folder), IDENTITY.encode(known), sync=True)


def read_left(files: Files, folder: Path) -> Identity | None:
    """For which home the logs left that lay in `folder`; None where nothing tells, or makes no
    sense."""
    try:
        found: Identity = IDENTITY.decode(files.read_file(_left(folder)))
    except (FileNotFoundError, ValueError):
        return None
    return found


def _left(folder: Path) -> Path:
    return folder.parent / LEFT.format(folder.name)
