"""Reads options from a TOML file and from `PXRS_` environment variables.

Both give a nested table, and the origin of each option (`file:line` or the variable's name), so
that an error can say where the option is set.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pxrs_ray.config.messages import Place
from pxrs_ray.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

Table = dict[str, Any]
Origins = dict[Place, str]

PREFIX = "PXRS_"
NESTED = "__"
TABLES = ("queues", "groups")
MISTYPED = 0.8

_HEADER = re.compile(r"^\s*\[\[?(?P<path>[^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*(?P<path>(?:\"[^\"]*\"|'[^']*'|[\w-]|\s*+\.\s*+)+?)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


def read_toml(path: str | Path) -> tuple[Table, Origins]:
    """Read a topology file.

    Raises ConfigError when it is not there, not readable, or not TOML (with the line).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # also a number of too many digits
        raise ConfigError(f"{path}: is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is not TOML of ours: it is nested too deeply") from None
    return table, {place: f"{path}:{line}" for place, line in _lines(text).items()}


def _lines(text: str) -> dict[Place, int]:
    """The line of each table and key. Keys inside inline values are told by the key around them."""
    found: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            place = table = _parts(header["path"])
        elif key := _KEY.match(line):
            place = table + _parts(key["path"])
        else:
            continue
        for end in range(1, len(place) + 1):
            found.setdefault(place[:end], number)
    return found


def _parts(path: str) -> Place:
    return tuple("".join(groups) for groups in _PART.findall(path))


def read_environment(
    environment: Mapping[str, str], model: type[BaseModel], names: Mapping[str, list[str]]
) -> tuple[Table, Origins]:
    """Read the options of `model` from variables such as PXRS_GROUPS__BILLING__CONSUMERS=3.

    `names` holds the queues and groups that are known so far: a variable's name part finds them
    whatever their case, with '_' for '-' and '.'. Variables that name no option are left alone,
    for the prefix may be used by others too; unless one looks like a mistyped option, which
    raises ConfigError.
    """
    table: Table = {}
    origins: Origins = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        parts = variable.removeprefix(PREFIX).split(NESTED)
        place = _place(parts, names)
        owner = _owner(model, place)
        if owner is None:
            continue
        field = owner.model_fields.get(place[-1])
        if field is None:
            if near := difflib.get_close_matches(place[-1], owner.model_fields, 1, MISTYPED):
                raise ConfigError(f"{variable}: names no option; did you mean {near[0]!r}?")
            continue
        here = table
        for part in place[:-1]:
            here = here.setdefault(part, {})
        here[place[-1]] = _value(text, field.annotation)
        for end in range(1, len(place) + 1):
            origins.setdefault(place[:end], variable)
    return table, origins


def _place(parts: list[str], names: Mapping[str, list[str]]) -> tuple[str, ...]:
    lowered = [part.lower() for part in parts]
    if len(parts) != 3 or lowered[0] not in TABLES:
        return tuple(lowered)
    known = {re.sub(r"[-.]", "_", name).lower(): name for name in names.get(lowered[0], [])}
    return (lowered[0], known.get(lowered[1], lowered[1]), lowered[2])


def _owner(model: type[BaseModel], place: tuple[str, ...]) -> type[BaseModel] | None:
    if len(place) == 1:
        return model
    if len(place) == 3 and place[0] in TABLES:
        return cast("type[BaseModel]", get_args(model.model_fields[place[0]].annotation)[-1])
    return None


def _value(text: str, annotation: Any) -> Any:
    """A number, truth value or table as JSON writes it; a text as it stands where one is wanted."""
    if annotation is str or str in get_args(annotation):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """`under` with everything that `over` says; queues and groups are merged option by option."""
    result = dict(under)
    for key, value in over.items():
        if key in TABLES and isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            names = result[key]
            result[key] = {
                **names,
                **{
                    name: {**given(names[name]), **given(options)}
                    if name in names and isinstance(given(options), Mapping)
                    else options
                    for name, options in value.items()
                },
            }
        else:
            result[key] = value
    return result


def given(options: Any) -> Any:
    """The options that were said, of a table or of one made into a config already."""
    if hasattr(options, "model_fields_set"):
        return {name: getattr(options, name) for name in options.model_fields_set}
    return options
