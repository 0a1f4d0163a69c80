"""What of a crew outlives its coordinator: a document in the group's registry, and the actors."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.handler import HandlerRef
from pxrs_ray.model import Incarnation, MemberId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CrewDocument:
    """Whether the group is paused, how its consumers are made, and which there are."""

    paused: bool = False
    incarnations: Mapping[MemberId, Incarnation] = field(default_factory=dict)
    ray_options: Mapping[str, Any] = field(default_factory=dict)
    handler: HandlerRef | None = None
    members: Mapping[MemberId, tuple[Incarnation, str]] = field(default_factory=dict)

    def to_text(self) -> str:
        """As JSON."""
        plain = asdict(self)
        if self.handler is not None:
            pickled = self.handler.pickled
            plain["handler"]["pickled"] = pickled and base64.b64encode(pickled).decode()
        return json.dumps(plain)

    @classmethod
    def from_text(cls, text: str) -> CrewDocument:
        """Read what `to_text` wrote; '' is a group that never had consumers."""
        if not text:
            return cls()
        plain = json.loads(text)
        handler = plain.pop("handler")
        if handler is not None:
            pickled = handler.pop("pickled")
            handler = HandlerRef(**handler, pickled=pickled and base64.b64decode(pickled))
        members = {name: (int(n), str(actor)) for name, (n, actor) in plain.pop("members").items()}
        return cls(**plain, handler=handler, members=members)


def kill_orphans(topology: str, group: str, known: set[str]) -> None:
    """End consumers of a group that were spawned, and never noted before the coordinator died."""
    prefix = names.consumers_of(topology, group)
    for found in ray.util.list_named_actors(all_namespaces=True):
        name = found["name"]
        ours = found["namespace"] == names.NAMESPACE and name.startswith(prefix)
        if ours and name not in known:
            logger.warning("ending the orphan %s", name)
            ray.kill(ray.get_actor(name, namespace=names.NAMESPACE))
