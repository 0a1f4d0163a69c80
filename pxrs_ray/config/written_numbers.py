"""What a person means by "5s" or "10GB" where a plain number is wanted: told, never guessed."""

from __future__ import annotations

import re

_WRITTEN = re.compile(r"^\s*(?P<number>\d[\d_]*(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)\s*$")
_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60}
_SECONDS |= {"h": 3_600, "hour": 3_600, "d": 86_400, "day": 86_400}
_BYTES = {"b": 1, "byte": 1}
_BYTES |= {f"{unit}b": 1_000**power for power, unit in enumerate("kmgtp", start=1)}
_BYTES |= {f"{unit}ib": 1_024**power for power, unit in enumerate("kmgtp", start=1)}
_BYTES |= {unit: 1_000**power for power, unit in enumerate("kmgtp", start=1)}
_PLAIN = {"": 1.0}


def number_meant(option: str, text: str) -> str:
    """Say which plain number to write for `text`; '' where it is no number of this option's unit.

    An option's unit is the last part of its name.
    """
    written = _WRITTEN.match(text)
    if written is None:
        return ""
    unit, (factors, told) = written["unit"].lower(), _unit_of(option)
    factor = {**_PLAIN, **factors}.get(unit, factors.get(unit.removesuffix("s")))
    if factor is None:
        return ""
    value = float(written["number"].replace("_", "")) * factor
    plain = f"{value:.0f}" if value == round(value) else f"{value:g}"
    return f"; write {plain}{told if unit else ', without quotes'}"


def _unit_of(option: str) -> tuple[dict[str, float], str]:
    words = option.split("_")
    if "ms" in words:
        return {unit: factor * 1_000 for unit, factor in _SECONDS.items()}, ", in milliseconds"
    if words[-1] in ("s", "seconds"):
        return dict(_SECONDS), ", in seconds"
    if "bytes" in words:
        return {unit: float(factor) for unit, factor in _BYTES.items()}, ", in bytes"
    return {}, ""
