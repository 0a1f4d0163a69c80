"""Whose a buffer's folder is: the `topology_id` of the registry that its logs were made under."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.log.files import Files

NAME = "identity.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """What is noted beside the logs of a buffer."""

    topology_id: str


IDENTITY = json_codec("log: identity.json", Identity)


def read_identity(files: Files, folder: Path) -> str:
    """The `topology_id` that is noted in `folder`, '' when none is. Raises LogCorrupted."""
    path = folder / NAME
    try:
        found: Identity = IDENTITY.decode(files.read_file(path))
    except FileNotFoundError:
        return ""
    except ValueError as error:
        raise LogCorrupted(
            f"{path}: does not tell whose logs these are ({error}): remove it if they are yours"
        ) from error
    return found.topology_id


def write_identity(files: Files, folder: Path, topology_id: str) -> None:
    """Note whose logs lie in `folder`, durably. Raises OSError, DiskFull."""
    files.replace(folder / NAME, IDENTITY.encode(Identity(topology_id)), sync=True)
