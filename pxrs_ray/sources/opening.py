"""From a queue's option `source` to an open `Source`, and to its virtual partitions."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from pxrs_ray.errors import UsageError
from pxrs_ray.partitioning import Spread
from pxrs_ray.sources.base import Source


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """An external queue, as its readers must know it: plain data that travels.

    `spread` says in which virtual partition a message is; it is the same for every reader.
    """

    address: str
    spread: Spread


def open_source(address: str) -> Source:
    """Open the source at `address`. Raises UsageError, NotFound, DependencyMissing."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "file":
        from pxrs_ray.sources.file import FileSource

        return FileSource(Path(unquote(parts.path)), options.get("key"))
    if parts.scheme in ("redis", "rediss"):
        from pxrs_ray.sources.redis import RedisSource

        if "stream" not in options:
            raise UsageError(f"source {parts.scheme}://...: say which stream, as ?stream=orders")
        plain = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        return RedisSource(plain, **options)
    module, _, name = address.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"source {address!r} is neither file:///..., redis://... nor a function that can be "
            f"imported here: {error}"
        ) from error
    if not isinstance(made, Source):
        raise UsageError(f"source {address!r} returned {made!r}, which is no pxrs_ray Source")
    return made
