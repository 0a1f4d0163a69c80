"""The manifest: the small file of each partition log that knows what the log should hold.

Rules of this file. `known_end` is an offset below which everything was given out: a log that
reopens below it has lost data. In memory logs it runs ahead of the end by a reserve, so that it
is written rarely; elsewhere it is only raised to what is synced. The file is replaced atomically.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import Gap
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId

NAME = "manifest.json"
VERSION = 1


@dataclass(slots=True)
class Manifest:
    """What is known of one partition log apart from its segments.

    `log_id` is the id of its queue, which was made once; '' in those that are older than ids.
    """

    queue: str
    partition: PartitionId
    start_offset: Offset = 0
    known_end: Offset = 0
    durability: Durability | None = None
    clean: bool = True
    boot_id: str = ""
    stopped: str = ""
    groups: dict[str, Offset] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    version: int = VERSION
    log_id: str = ""

    def write(self, files: Files, folder: Path) -> None:
        """Replace the file. Raises OSError, DiskFull."""
        sync = self.durability is not Durability.MEMORY
        files.replace(folder / NAME, MANIFEST.encode(self), sync=sync)

    @classmethod
    def read(cls, files: Files, folder: Path) -> Manifest | None:
        """The manifest of a log; None when there is none. Raises LogCorrupted."""
        path = folder / NAME
        try:
            found: Manifest = MANIFEST.decode(files.read_file(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LogCorrupted(f"{path}: not a manifest: {error}") from error
        if found.version != VERSION:
            raise LogCorrupted(f"{path}: not of version {VERSION}: use a newer pxrs-ray")
        return found


MANIFEST = json_codec("log: manifest.json", Manifest, indent=1)
