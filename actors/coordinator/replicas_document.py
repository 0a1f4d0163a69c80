"""`ReplicasDocument`: what of a group's consumers survives a coordinator, in the group's
registry."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from functools import partial
from typing import Any

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.consumer.handler import HandlerRef
from pxrs_ray.actors.coordinator.orphans import consumers_there
from pxrs_ray.codec import Codec, register
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Incarnation, MemberId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicasDocument:
    """Whether the group is paused, how its consumers are made, and which there are.

    `scaled_ms` is when an operator set their number; None where nobody has, since a file did.
    """

    paused: bool = False
    incarnations: Mapping[MemberId, Incarnation] = field(default_factory=dict)
    ray_options: Mapping[str, Any] = field(default_factory=dict)
    handler: HandlerRef | None = None
    members: Mapping[MemberId, tuple[Incarnation, str]] = field(default_factory=dict)
    scaled_ms: int | None = None

    def without_code(self) -> ReplicasDocument:
        """The same, without what would be run."""
        return ReplicasDocument(self.paused, self.incarnations)

    def to_text(self) -> str:
        """As JSON."""
        plain = asdict(self)
        if self.handler is not None:
            pickled = self.handler.pickled
            coded = None if pickled is None else base64.b64encode(pickled).decode()
            plain["handler"]["pickled"] = coded
        return json.dumps(plain)

    @classmethod
    def from_text(cls, text: str) -> ReplicasDocument:
        """Read what `to_text` wrote; '' is a group that never had consumers."""
        if not text:
            return cls()
        plain = json.loads(text)
        handler = plain.pop("handler")
        if handler is not None:
            pickled = handler.pop("pickled")
            coded = None if pickled is None else base64.b64decode(pickled)
            handler = HandlerRef(**handler, pickled=coded)
        members = {name: (int(n), str(actor)) for name, (n, actor) in plain.pop("members").items()}
        return cls(**plain, handler=handler, members=members)


def _decode(data: bytes) -> ReplicasDocument:
    try:
        return ReplicasDocument.from_text(data.decode())
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a document of replicas: {error!r}") from None


REPLICAS: Codec[ReplicasDocument] = register(
    Codec(
        "registry: replicas",
        ReplicasDocument,
        lambda kept: kept.to_text().encode(),
        _decode,
    )
)


async def kill_orphans(topology: str, group: str, known: Callable[[], set[str]]) -> None:
    """End consumers of a group that were spawned, and never noted before the coordinator died."""
    # First who is there, then who belongs: whoever is made in between is in neither.
    there = await gcs.ask("list", partial(consumers_there, topology, group), gcs.MAKE_S)
    for name in sorted(there - known()):
        logger.warning("ending the orphan %s", name)
        await gcs.kill(await gcs.find(name))
