"""Says what is written today in place of the options that a group had before it had a mode of
processing.

Rules of this file. Old spellings are refused; no code goes by them. The answer is the whole line to
write, with every old spelling of that group in it, as it is written where the old ones stand: in a
file, in a variable, or in Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_ORDERED, _BY_KEY, _PACKS = "ordered", "by_key", "packs"
_CLASSES = {_ORDERED: "Ordered", _BY_KEY: "ByKey", _PACKS: "Packs"}

# The modes in which an old option exists, and its name there.
OLD: Mapping[str, tuple[tuple[str, ...], str]] = {
    "commit_mode": ((_ORDERED,), "commit_mode"),
    "consumer_per_partition": ((_ORDERED,), "consumer_per_partition"),
    "parallelism": ((_BY_KEY, _PACKS), "parallelism"),
    "handler_timeout_ms": ((_BY_KEY,), "handler_timeout_ms"),
    "lookahead_records": ((_BY_KEY,), "lookahead_records"),
    "lookahead_bytes": ((_BY_KEY,), "lookahead_bytes"),
    "fair_tenants": ((_BY_KEY,), "fair_tenants"),
    "tenant_weights": ((_BY_KEY,), "tenant_weights"),
    "tenant_header": ((_BY_KEY, _PACKS), "tenant_header"),
    "submit_strategy": ((_PACKS,), "submit_strategy"),
    "processing_strategy": ((_PACKS,), "processing_strategy"),
    "pack_records": ((_PACKS,), "pack_records"),
    "submit_batch_records": ((_PACKS,), "batch_records"),
    "pack_timeout_ms": ((_PACKS,), "timeout_ms"),
    "pack_retries": ((_PACKS,), "retries"),
    "pack_pause_ms": ((_PACKS,), "pause_ms"),
    "pack_pause_ms_max": ((_PACKS,), "pause_ms_max"),
    "failure_percentage": ((_PACKS,), "failure_percentage"),
}


def renamed(name: str) -> str:
    """What an option is called within its mode today; any other name stays as it is."""
    return OLD[name][1] if name in OLD else name


def moved(name: str, unknown: Mapping[str, Any], origin: str) -> str:
    """What to write in place of the old option `name`; '' when it is none.

    `unknown` has the values of all options of that group that are not known, `name` among them.
    """
    if name not in OLD:
        return ""
    # None stood for an option that was left out.
    said = {old: value for old, value in unknown.items() if old in OLD and value is not None}
    if name not in said:
        return "is an option of a processing mode now; None: leave it out"
    mode = _mode_of(said)
    options = {OLD[old][1]: value for old, value in said.items() if mode in OLD[old][0]}
    if mode == _BY_KEY:  # whose default is many at once; it was one
        options = {"parallelism": 1, **options}
    line = _line(mode, options, origin)
    if mode not in OLD[name][0]:
        return f"is no option of mode {mode!r}, which the others are of: leave it out, write {line}"
    return f"is an option of a processing mode now: write {line}"


def _mode_of(said: Mapping[str, Any]) -> str:
    """The mode that these worked in: strategies went before everything, keys before the order."""
    for mode in (_PACKS, _BY_KEY):
        if any(OLD[old][0] == (mode,) for old in said):
            return mode
    return _BY_KEY if any(_BY_KEY in OLD[old][0] for old in said) else _ORDERED


def _line(mode: str, options: Mapping[str, Any], origin: str) -> str:
    if origin.startswith("PXRS_") and ":" not in origin:
        variable = origin.rpartition("__")[0] + "__PROCESSING"
        return f"{variable}='{json.dumps({'mode': mode, **options})}'"
    if origin:
        return f"processing = {_toml({'mode': mode, **options})}"
    told = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f"processing={_CLASSES[mode]}({told})"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_key(str(name))} = {_toml(inner)}" for name, inner in value.items())
        return "{" + ", ".join(pairs) + "}"
    return json.dumps(value, default=str)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)
