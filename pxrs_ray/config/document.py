"""How a topology's configuration is written into its registry, and read again by a later process.

Rules of this file. Everything is written: the given options, and every value that followed from
them, defaults included. Reading uses nothing else: no environment, no file, and no default that
later code has changed. The store's URL is not written: the reader has it, and it may hold a
password.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pxrs_ray.codec import Codec, register
from pxrs_ray.config.declare import Options
from pxrs_ray.config.old_spellings import OLD
from pxrs_ray.config.sources import TABLES
from pxrs_ray.config.topology import PxrsConfig
from pxrs_ray.errors import ConfigError

NOT_WRITTEN = "store"


def encode(config: PxrsConfig) -> bytes:
    """The whole configuration as JSON: `said`, and `values` with everything that followed."""
    values = config.model_dump(mode="json", exclude={NOT_WRITTEN})
    return json.dumps({"said": _said(config, values), "values": values}).encode()


def _said(options: Options, values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in options.model_fields_set & values.keys():
        value = getattr(options, name)
        if name in TABLES:
            # A table holds what follows from its groups too: a queue of dead letters.
            found[name] = {key: _said(one, values[name][key]) for key, one in value.items()}
        elif isinstance(value, Options):
            found[name] = _said(value, values[name])
        else:
            found[name] = values[name]
    return found


def decode(data: bytes, store: str = "") -> PxrsConfig:
    """The configuration that `encode` wrote, with the URL of the store that it was found in.

    Raises ValueError (ConfigError) for what is no configuration.
    """
    try:
        document = json.loads(data)
        said, values = dict(document["said"]), document["values"]
        _refuse_old(values.get("groups", {}))
        if store:
            said[NOT_WRITTEN] = store
        if "data_dir" in said:
            said["data_dir"] = Path(said["data_dir"])
        found = PxrsConfig.of(said)
        missing = _told_otherwise(found, values, said)
        return PxrsConfig.of(missing) if missing is not None else found
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"this is not the configuration of a topology: {error!r}") from error


def _refuse_old(groups: dict[str, dict[str, Any]]) -> None:
    """Raise ConfigError, one line, for what was written before groups had a processing mode."""
    for name, options in groups.items():
        if old := [option for option in options if option in OLD]:
            raise ConfigError(
                f"the registry holds a configuration that an earlier version wrote: groups.{name} "
                f"has {old[0]!r}, which is an option of a processing mode now. Nothing is changed: "
                "run the topology with that version, or deploy under another name"
            )


def _told_otherwise(
    found: PxrsConfig, values: dict[str, Any], said: dict[str, Any]
) -> dict[str, Any] | None:
    """`said`, and each value that this code would fill in differently; None when there is none."""
    now = found.model_dump(mode="json", exclude={NOT_WRITTEN})
    if {name: now.get(name) for name in values} == values:
        return None
    fields = type(found).model_fields.keys() - set(TABLES)
    full = {**said, **{n: v for n, v in values.items() if n in fields and now[n] != v}}
    for kind in TABLES:
        known = {name: dict(said.get(kind, {}).get(name, {})) for name in values.get(kind, {})}
        for name, options in values.get(kind, {}).items():
            filled = now[kind].get(name, {})
            changed = {n: v for n, v in options.items() if n not in filled or filled[n] != v}
            known[name] |= changed
        full[kind] = known
    if "data_dir" in full:
        full["data_dir"] = Path(full["data_dir"])
    return full


CONFIG = register(Codec("registry: config", PxrsConfig, encode, decode))
