"""The manifest: the small file of each partition log that knows what the log should hold.

Rules of this file. `known_end` is an offset below which everything was given out: a log that
reopens below it has lost data. In memory logs it runs ahead of the end by a reserve, so that it
is written rarely; elsewhere it is only raised to what is synced. The file is replaced atomically.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pxrs_ray.errors import LogCorrupted
from pxrs_ray.log.files import Files
from pxrs_ray.log.wire import Gap
from pxrs_ray.model import Offset, PartitionId

NAME = "manifest.json"
VERSION = 1


@dataclass(slots=True)
class Manifest:
    """What is known of one partition log beside its segments."""

    queue: str
    partition: PartitionId
    start_offset: Offset = 0
    known_end: Offset = 0
    durability: str = ""
    clean: bool = True
    boot_id: str = ""
    stopped: str = ""
    groups: dict[str, Offset] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)

    def write(self, files: Files, folder: Path) -> None:
        """Replace the file. Raises OSError, DiskFull."""
        data = json.dumps({"version": VERSION, **asdict(self)}, indent=1).encode()
        files.replace(folder / NAME, data, sync=self.durability != "memory")

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of a log; None when there is none. Raises LogCorrupted."""
        path = folder / NAME
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
            if found.pop("version") != VERSION:
                raise LogCorrupted(f"{path}: not of version {VERSION}: use a newer pxrs-ray")
            found["gaps"] = [Gap(**gap) for gap in found["gaps"]]
            return cls(**found)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise LogCorrupted(f"{path}: not a manifest: {error}") from error
