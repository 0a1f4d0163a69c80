"""`Hand`: one consumer that a crew wants to have."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pxrs_ray.model import Incarnation, MemberId


@dataclass(slots=True)
class Hand:
    """One wanted consumer. `state` is starting, pending, running, silent, leaving or failed."""

    member: MemberId
    incarnation: Incarnation = 0
    actor: str = ""
    state: str = "starting"
    reason: str = ""
    pid: int = 0
    node: str = ""
    handle: Any = None
    born_s: float = 0.0
    quick_deaths: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
