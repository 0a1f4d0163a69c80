"""Reads options from a TOML file and from `PXRS_` environment variables.

Both give a nested table, and the origin of each option (`file:line` or the variable's name), so
that an error can say where the option is set.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pxrs_ray.config.messages import OptionPath, kinds_of
from pxrs_ray.config.old_spellings import OLD
from pxrs_ray.errors import ConfigError
from pxrs_ray.suggest import nearest

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

OptionTable = dict[str, Any]
Origins = dict[OptionPath, str]

PREFIX = "PXRS_"
NESTED = "__"
TABLES = ("queues", "groups")
MODE_OF = "processing"
MISTYPED = 0.8

_HEADER = re.compile(r"^\s*\[\[?(?P<path>[^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*(?P<path>(?:\"[^\"]*\"|'[^']*'|[\w-]|\s*+\.\s*+)+?)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


def read_toml(path: str | Path) -> tuple[OptionTable, Origins]:
    """Read a topology file.

    Raises ConfigError when it is not there, not readable, or not TOML (with the line).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file: is that its place? `pxrs init NAME` writes one"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: it is no text in UTF-8 ({error})") from None
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # also a number of too many digits
        raise ConfigError(
            f"{path}: is not TOML: {error}; texts stand in quotes, numbers, true and false do not"
        ) from None
    except RecursionError:
        raise ConfigError(f"{path}: cannot be read: its tables are nested too deeply") from None
    return table, {place: f"{path}:{line}" for place, line in _lines(text).items()}


def _lines(text: str) -> dict[OptionPath, int]:
    """The line of each table and key. Keys in inline values have that of the key around them."""
    found: dict[OptionPath, int] = {}
    table: OptionPath = ()
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


def _parts(path: str) -> OptionPath:
    return tuple("".join(groups) for groups in _PART.findall(path))


def read_environment(
    environment: Mapping[str, str], model: type[BaseModel], names: Mapping[str, list[str]]
) -> tuple[OptionTable, Origins]:
    """Read the options of `model` from variables such as PXRS_GROUPS__BILLING__CONSUMERS=3, or
    PXRS_GROUPS__BILLING__PROCESSING__PARALLELISM=16.

    `names` holds the queues and groups that are known so far: a variable's name part finds them
    whatever their case, with '_' for '-' and '.'. Variables that name no option are left alone,
    for the prefix may be used by others too; unless one looks like a mistyped option, which
    raises ConfigError.
    """
    table: OptionTable = {}
    origins: Origins = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX):
            continue
        parts = variable.removeprefix(PREFIX).split(NESTED)
        place = _place(parts, names)
        fields = _fields(model, place)
        field = fields.get(place[-1])
        if field is None and not (fields and place[0] == "groups" and place[-1] in OLD):
            if near := nearest(place[-1], fields, MISTYPED):
                meant = NESTED.join([*parts[:-1], near.upper()])
                raise ConfigError(f"{variable}: names no option; did you mean {PREFIX}{meant}?")
            continue
        here = table
        for part in place[:-1]:
            inner = here.get(part, {})
            here[part] = _with_mode(inner) if part == MODE_OF else inner
            here = here[part]
            if not isinstance(here, dict):
                raise ConfigError(f"{variable}: another variable says {inner!r} for all of {part}")
        here[place[-1]] = _value(text, field.annotation if field is not None else None)
        for end in range(1, len(place) + 1):
            origins.setdefault(place[:end], variable)
    return table, origins


def _place(parts: list[str], names: Mapping[str, list[str]]) -> tuple[str, ...]:
    lowered = [part.lower() for part in parts]
    if len(parts) < 3 or lowered[0] not in TABLES:
        return tuple(lowered)
    known = {re.sub(r"[-.]", "_", name).lower(): name for name in names.get(lowered[0], [])}
    return (lowered[0], known.get(lowered[1], lowered[1]), *lowered[2:])


def _fields(model: type[BaseModel], place: tuple[str, ...]) -> Mapping[str, FieldInfo]:
    """The options among which the last part of `place` must be; none where no options are."""
    if len(place) == 1:
        return model.model_fields
    if len(place) not in (3, 4) or place[0] not in TABLES:
        return {}
    fields = get_args(model.model_fields[place[0]].annotation)[-1].model_fields
    if len(place) == 3:
        return cast("Mapping[str, FieldInfo]", fields)
    if place[2] != MODE_OF or MODE_OF not in fields:
        return {}
    kinds = kinds_of(fields[MODE_OF].annotation).values()
    return {name: field for kind in kinds for name, field in kind.model_fields.items()}


def _value(text: str, annotation: Any) -> Any:
    """A number, truth value or table as JSON writes it; a text as it stands where one is wanted."""
    if annotation is str or str in get_args(annotation):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> OptionTable:
    """`under` with everything that `over` says; queues and groups are merged option by option.

    So is a group's mode of processing where `over` names none; one that is named stands for itself.
    """
    result = dict(under)
    for key, value in over.items():
        if key in TABLES and isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            names = result[key]
            result[key] = {
                **names,
                **{
                    name: _over(given(names[name]), given(options))
                    if isinstance(given(names.get(name)), Mapping)
                    and isinstance(given(options), Mapping)
                    else options
                    for name, options in value.items()
                },
            }
        else:
            result[key] = value
    return result


def _over(under: Mapping[str, Any], over: Mapping[str, Any]) -> OptionTable:
    result = {**under, **over}
    mode = over.get(MODE_OF)
    if MODE_OF in under and isinstance(mode, Mapping) and "mode" not in mode:
        result[MODE_OF] = {**_with_mode(given(under[MODE_OF])), **mode}
    return result


def _with_mode(mode: Any) -> OptionTable:
    """A mode's table, also of one that was only named."""
    return dict(mode) if isinstance(mode, Mapping) else {"mode": mode}


def given(options: Any) -> Any:
    """The options that were said, of a table or of one made into a config already."""
    if hasattr(options, "model_fields_set"):
        return {name: getattr(options, name) for name in options.model_fields_set}
    return options
