"""The owner of a buffer's folder: the `topology_id` of the registry under which its logs were
made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.model import Generation

NAME = "identity.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a buffer's folder notes next to the logs.

    `generation` is the highest of a coordinator that it belonged to; `leader` distinguishes that
    coordinator from another with the same number. `registry_disk` and `registry_host` are the home
    of a registry that is on a disk; '' when they are not known.
    """

    topology_id: str
    generation: Generation = 0
    leader: str = ""
    registry_disk: str = ""
    registry_host: str = ""

    def is_behind(self, known: Identity) -> bool:
        """Whether `known`, which was noted here, comes from a later leader than this."""
        return known.topology_id == self.topology_id and (
            known.generation > self.generation
            or (known.generation == self.generation > 0 and known.leader != self.leader)
        )


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


def step_back(files: Files, folder: Path, generation: Generation) -> None:
    """Have it noted in `folder`, whose logs are closed and about to be copied, that they belonged
    to the coordinator before `generation`.

    Whichever of the two copies is served from next notes the coordinator that lets it: so of two
    copies, the one that was served from last is the one that knows the newer coordinator, also
    where both were served under one. Done twice it changes nothing. Raises OSError, DiskFull.
    """
    known = read_identity(files, folder)
    if known is not None and known.generation == generation > 0:
        write_identity(files, folder, replace(known, generation=generation - 1))
