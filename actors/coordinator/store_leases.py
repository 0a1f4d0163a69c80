"""`renew_leases`: writes members' leases to the registry, for tools that look there while the
coordinator is away."""

from __future__ import annotations

import logging

from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.errors import StoreCorrupted, StoreError, StoreSchemaError
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.model import Outcome
from pxrs_ray.store.registry import RegistryStore

logger = logging.getLogger(__name__)


async def renew_leases(
    store: RegistryStore, thread: StoreThread, core: GroupCoordinator, lease_ms: int
) -> bool:
    """Renew the leases of a group's live members; whether another coordinator leads the group.

    A store that is away is tried again in the next round. Raises what lasts.
    """
    members = [(each.member.member, each.member.incarnation) for each in core.live_slots()]
    if not members:
        return False
    state = core.state
    try:
        outcomes = await thread.call(store.renew, state.group, state.generation, members, lease_ms)
    except (StoreCorrupted, StoreSchemaError):
        raise
    except StoreError as error:
        logger.warning("leases of %s are not renewed: %s", state.group, error)
        return False
    return Outcome.FENCED in outcomes
