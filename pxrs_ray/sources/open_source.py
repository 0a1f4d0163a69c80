"""Opens the `Source` that a queue's option `source` names, and maps it to virtual partitions."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.sources.source import Source
from pxrs_ray.store.url import PASSWORD_REFERENCES, password_named

_REDIS_OPTIONS = {"stream", "key", "payload", *PASSWORD_REFERENCES}


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """An external queue, as its readers must know it: plain data that pickles.

    `spread` says in which virtual partition a message is; it is the same for every reader.
    """

    address: str
    spread: PartitioningSpec


def open_source(address: str) -> Source:
    """Open the source at `address`. Raises UsageError, ConfigError, NotFound, DependencyMissing."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "file":
        from pxrs_ray.sources.file import FileSource

        return FileSource(Path(unquote(parts.path)), options.get("key"))
    if parts.scheme in ("redis", "rediss"):
        from pxrs_ray.sources.redis import RedisSource

        where = f"source {parts.scheme}://..."
        if "stream" not in options:
            raise UsageError(f"{where}: name the stream: ?stream=orders")
        if unknown := sorted(options.keys() - _REDIS_OPTIONS):
            raise UsageError(
                f"{where}: no option {unknown[0]!r}; there are {sorted(_REDIS_OPTIONS)}"
            )
        password = password_named(options, os.environ, where)
        plain = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        known = {name: options[name] for name in ("key", "payload") if name in options}
        return RedisSource(plain, options["stream"], password=password, **known)
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
