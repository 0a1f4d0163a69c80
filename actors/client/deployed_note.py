"""What a topology keeps of its last deployment: which file it was, and when, as JSON."""

from __future__ import annotations

import json
from typing import Any

from pxrs_ray.codec import Codec, register


def _decode_note(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError(f"nested too deeply: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"a note of what was deployed is an object, not {type(found).__name__}")
    return found


DEPLOYED: Codec[dict[str, Any]] = register(
    Codec(
        "topology: deployed", dict[str, Any], lambda note: json.dumps(note).encode(), _decode_note
    )
)
