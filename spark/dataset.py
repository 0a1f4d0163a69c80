"""Routes the blocks of a Ray Dataset like the partitions of a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pxrs_ray.errors import UsageError
from pxrs_ray.feed.facts import KnownProgress
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.spark.routing import Feed
from pxrs_ray.spark.tasks import route_block

if TYPE_CHECKING:
    from ray.data import Dataset


@dataclass(frozen=True, slots=True)
class Blocks:
    """A `Source` of blocks. `columns` names the Dataset's column for each of a message's."""

    references: Sequence[Any]
    columns: Mapping[str, str]

    @classmethod
    def of(cls, dataset: Dataset, columns: Mapping[str, str]) -> Blocks:
        """The blocks of `dataset`. Raises UsageError for a column that is not there."""
        found = dataset.columns() or []
        for name, column in columns.items():
            if column not in found:
                raise UsageError(
                    f"{name}={column!r} is no column of this Dataset; it has {', '.join(found)}"
                )
        return cls(dataset.to_arrow_refs(), columns)

    @property
    def locations(self) -> Sequence[str]:
        """A place for each block, for they can all be fetched at once."""
        return [str(number) for number in range(len(self.references))]

    def fetch(self, number: int) -> Any:
        """The block itself, for Ray has it."""
        return self.references[number]

    def route(self, feed: Feed, number: int, told: KnownProgress, fetched: Any) -> Any:
        """Route one block where Ray sees fit."""
        return route_block.remote(feed, number, told, fetched, self.columns)
