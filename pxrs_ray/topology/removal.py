"""`Removal`: what a removal deletes, and what prevents it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Removal:
    """A group, a queue or a topology that may be removed.

    `goes` lists what is lost for ever, `stays` what is left though one may think otherwise, and
    `uses` what uses it still, each as a line. What is in `bars` forbids it altogether.
    """

    what: str
    name: str
    goes: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    bars: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)

    def check(self, *, force: bool) -> None:
        """Raise UsageError when something stands in the way; nothing was changed."""
        told = f"{self.what} {self.name} is in use, and nothing was changed:\n  "
        if self.bars:
            raise UsageError(told + "\n  ".join(self.bars))
        if self.uses and not force:
            raise UsageError(
                told + "\n  ".join(self.uses) + "\nEnd that first, or say --force (force=True)"
            )
