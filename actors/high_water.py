"""`HighWater`: what the registry had accepted, noted on this node's disk.

A registry that comes back with less than this has lost accepted writes (a server without
persistence, a restored backup). Going on would hand out epochs a second time, so it is refused.
On a node that has no note there is nothing to compare; then the registry is believed.
"""

from __future__ import annotations

import json
from pathlib import Path

from pxrs_ray.errors import StoreCorrupted


class HighWater:
    """One small file beside the logs: registry id, and per group generation and version.

    A registry that is not `kept` (it lives in the cluster's memory) may be another each time.
    """

    def __init__(self, folder: Path, registry_id: str, *, kept: bool = True) -> None:
        self.problems: list[str] = []
        self._file = folder / "registry-high-water.json"
        self._registry_id = registry_id
        self._groups: dict[str, tuple[int, int]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        try:
            noted = json.loads(self._file.read_text())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self.problems.append(f"{self._file} cannot be read ({error}): a loss is not noticed")
            return
        if noted["registry_id"] != registry_id and not kept:
            return
        self._groups = {name: (int(g), int(v)) for name, (g, v) in noted["groups"].items()}
        if noted["registry_id"] != registry_id:
            raise StoreCorrupted(
                f"the registry is not the one that this topology used before (id {registry_id}, "
                f"before {noted['registry_id']}): it was emptied or replaced. Restore it, or "
                f"remove {self._file} to start every group from its first message"
            )

    def check(self, group: str, generation: int, version: int) -> None:
        """Compare what `lead` brought with what was noted; raises StoreCorrupted."""
        noted_generation, noted_version = self._groups.get(group, (0, 0))
        if generation <= noted_generation or version < noted_version:
            raise StoreCorrupted(
                f"the registry of {group} went back from generation {noted_generation}, version "
                f"{noted_version} to {generation}, {version}: it has lost accepted writes. Restore "
                f"it, or remove {self._file} to go on with what it holds (messages are delivered "
                "again from the older checkpoints)"
            )

    def note(self, group: str, generation: int, version: int) -> None:
        """These are durable in the registry now. Not synced: it is a witness, not a promise."""
        self._groups[group] = (generation, version)
        text = json.dumps({"registry_id": self._registry_id, "groups": self._groups})
        scratch = self._file.with_suffix(".tmp")
        scratch.write_text(text)
        scratch.replace(self._file)
