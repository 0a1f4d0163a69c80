"""Finds orphans: consumer actors that belong to no member of a group, by the actors' names.

Rules of this file. What the coordinator has now decides who belongs, not what a name should be. A
member that joined again lives on in the actor of its former incarnation; one that starts, or hands
over, has an actor before it is a member, or after.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.actors import names
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.actor_process import end_actor
from pxrs_ray.actors.cluster.named_actors import actors_named, kill_actor
from pxrs_ray.errors import NotFound

if TYPE_CHECKING:
    from pxrs_ray.actors.coordinator.group_controller import GroupController

logger = logging.getLogger(__name__)


def consumers_there(topology: str, group: str | None = None) -> set[str]:
    """The consumer actors of a topology (of one group) that Ray knows now."""
    prefix = f"{names.prefix(topology)}consumer/" if group is None else None
    return set(actors_named(prefix or names.consumers_of(topology, str(group))))


def end_orphan(name: str) -> None:
    """End an actor by name, frozen or not; one that is gone already is ended."""
    # Its process first: a frozen one does not hear Ray's kill, which then forgets where it is.
    with suppress(NotFound):
        end_actor(name)
    kill_actor(name)


async def orphans_of(topology: str, controllers: Collection[GroupController]) -> list[str]:
    """The consumer actors of a topology that belong to no member of these groups, all it has."""
    # First who is there, then who belongs: whoever is made in between is in neither.
    there = await gcs.ask("list", partial(consumers_there, topology))
    return sorted(
        there - {actor for controller in controllers for actor in controller.replica_set.actors()}
    )


async def end_orphans_of(topology: str, controllers: Collection[GroupController]) -> list[str]:
    """End exactly those; answer which."""
    found = await orphans_of(topology, controllers)
    for name in found:
        logger.warning("ending the orphan %s", name)
        await gcs.ask("end", partial(end_orphan, name), gcs.MAKE_S)
    return found
