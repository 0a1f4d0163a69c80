"""What a slot's leader wants done, and the bounds that it keeps."""

from __future__ import annotations

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset
from pxrs_ray.replication.peer_messages import LogKey, ToFollower
from pxrs_ray.replication.placement import Disk, IsrChange


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """`synced_only`: only what is synced counts as stored. A replica in sync that has not stored
    for `lag_max_ms` what it should have leaves the in-sync set, however little that is. So many
    runs of frames of a log are under way to one follower at the most. What is not answered
    is said again after `again_ms`. Replicas that are not in sync are sent so many bytes in a second
    at the most, all together; 0 is no bound."""

    min_isr: int = 1
    synced_only: bool = False
    lag_max_ms: int = 1_000
    ships_max: int = 4
    again_ms: int = 200
    catch_up_bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class Ship:
    """Send frames of a log from `first` on to a follower, as many as one message takes; then
    say with `shipped` up to where."""

    to: Disk
    key: LogKey
    first: Offset


@dataclass(frozen=True, slots=True)
class HaveBegin:
    """Tell a follower to begin its log anew, where this one can be followed from."""

    to: Disk
    key: LogKey
    life: int
    number: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Say this to a follower."""

    to: Disk
    message: ToFollower


@dataclass(frozen=True, slots=True)
class AskIsr:
    """Ask the coordinator for another in-sync set."""

    change: IsrChange


@dataclass(frozen=True, slots=True)
class Advanced:
    """What is before `to` is on every replica in sync: acknowledge it, and let it be read."""

    key: LogKey
    to: Offset


@dataclass(frozen=True, slots=True)
class SteppedDown:
    """Another leader was elected: nothing that waits is acknowledged here any more."""


LeaderEffect = Ship | HaveBegin | Tell | AskIsr | Advanced | SteppedDown
