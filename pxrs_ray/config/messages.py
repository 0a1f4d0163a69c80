"""Turns what validation found into one ConfigError that says, for each problem, what to write.

A problem names where it stands (file and line, or environment variable), the option, the value
without secrets, and what is allowed; an unknown option comes with the nearest known name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

from pxrs_ray.config.redact import without_secrets
from pxrs_ray.config.written_numbers import number_meant
from pxrs_ray.errors import ConfigError
from pxrs_ray.suggest import did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from pxrs_ray.config.declare import Options

OptionPath = tuple[str | int, ...]

VALUE_CHARS_MAX = 80


def refusal(
    model: type[Options], error: ValidationError, origins: Mapping[OptionPath, str] | None = None
) -> ConfigError:
    """Make the ConfigError of `error`; `origins` tells by place which file line or variable."""
    problems = error.errors(include_url=False)
    unknown: dict[OptionPath, dict[str, Any]] = {}
    for problem in problems:
        if problem["type"] == "extra_forbidden":
            beside = unknown.setdefault(problem["loc"][:-1], {})
            beside[str(problem["loc"][-1])] = problem["input"]
    told = [_told(model, problem, origins or {}, unknown) for problem in problems]
    if len(told) == 1:
        return ConfigError(told[0])
    return ConfigError(f"{len(told)} wrong options:\n  " + "\n  ".join(told))


def _told(
    model: type[Options],
    problem: ErrorDetails,
    origins: Mapping[OptionPath, str],
    unknown: Mapping[OptionPath, Mapping[str, Any]],
) -> str:
    place: OptionPath = problem["loc"]
    written = _as_written(model, place)
    ends = range(len(written), 0, -1)
    origin = next((origins[written[:end]] for end in ends if written[:end] in origins), "")
    path = ".".join(str(part) for part in written)
    where = f"{origin}: " if origin else ""
    if problem["type"] == "value_error":  # one of our own sentences, which names its options
        text = str(problem["ctx"]["error"])
        return f"{where}{path}: {text}" if path else _with_origins(text, origins)
    owner = _model_at(model, place[:-1])
    if problem["type"] == "extra_forbidden":
        name = str(place[-1])
        meant = owner.meant_by(name, unknown[place[:-1]], origin) if owner is not None else ""
        if meant:
            return f"{where}{path} = {_shown(problem['input'])}: {meant}"
        return f"{where}{path}: unknown option; {_meant(model, owner, place, problem['input'])}"
    if kinds := kinds_of(_annotation_at(model, place)):
        return f"{where}{path}{_no_such_kind(problem, kinds)}"
    if problem["type"] == "model_type":
        return f"{where}{path} = {_shown(problem['input'])}: must be a table of options"
    if place[-1] == "[key]":
        path = ".".join(str(part) for part in place[:-2])
        return (
            f"{where}{path}: the name {_shown(problem['input'])} must begin with a letter or "
            "digit, and go on with letters, digits, '.', '_' and '-', 100 at most"
        )
    allowed = _allowed(owner, str(place[-1])) or _as_sentence(problem["msg"])
    if problem["type"] == "missing":
        return f"{where}{path}: is missing; {allowed}"
    given = problem["input"]
    wanted = (
        number_meant(str(place[-1]), given)
        if "number" in allowed and isinstance(given, str)
        else ""
    )
    return f"{where}{path} = {_shown(given)}: {allowed}{wanted}"


def _with_origins(text: str, origins: Mapping[OptionPath, str]) -> str:
    """Our own sentences on several options, each of which begins with its option's path: with
    where that, or the nearest table around it, was set."""
    places = {".".join(map(str, place)): origin for place, origin in origins.items()}
    told = []
    for line in text.split("\n"):
        begun = [path for path in places if re.match(rf"{re.escape(path)}(?![\w-])", line.strip())]
        origin = places[max(begun, key=len)] if begun else ""
        told.append(f"{origin}: {line.strip()}" if origin else line.strip())
    return "\n  ".join(told)


def _no_such_kind(problem: ErrorDetails, kinds: Mapping[str, type[Options]]) -> str:
    """What is wrong with what should be one kind of options out of several, told by its mode."""
    given = problem["input"]
    names = ", ".join(repr(name) for name in kinds)
    if not isinstance(given, Mapping):
        return f" = {_shown(given)}: must be one of {names}, or a table with one as its mode"
    if "mode" in given:
        meant = nearest(str(given["mode"]), kinds)
        told = f"; did you mean {meant!r}?" if meant is not None else ""
        return f".mode = {_shown(given['mode'])}: must be one of {names}{told}"
    fit = [name for name, kind in kinds.items() if kind.model_fields.keys() >= given.keys()]
    lines = " or ".join(f'mode = "{name}"' for name in fit if given)
    return ".mode: is missing; " + (f"write {lines} beside it" if lines else f"one of {names}")


def _meant(
    model: type[Options], owner: type[Options] | None, place: OptionPath, value: object
) -> str:
    """What to write instead of an option that is not known at `place`, among those of `owner`."""
    name = str(place[-1])
    if owner is None:
        return "nothing is known here"
    if isinstance(value, Mapping) and _model_at(owner, (f"{name}s", "")) is not None:
        return f"did you mean [{name}s.NAME]?"
    for table in model.model_fields:
        inner = _model_at(model, (table, ""))
        if inner is not None and inner is not owner and name in inner.model_fields:
            return f"it is an option of one of the {table}: write it under [{table}.NAME]"
    if owner is not model and name in model.model_fields:
        return "it is an option of the whole topology: write it above the first [table]"
    return did_you_mean(name, owner.model_fields)


def _shown(value: object) -> str:
    text = repr(without_secrets(value))
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 3] + "..."


def _as_sentence(message: str) -> str:
    return message.replace("Input should be", "must be").replace("String should", "must")


def _annotation_at(model: type[Options], place: OptionPath) -> Any:
    """What may stand at `place`: goes into options, tables by name, and the mode's kind."""
    here: Any = model
    for part in place:
        kinds = kinds_of(here)
        if hasattr(here, "model_fields"):
            here = here.model_fields[part].annotation if part in here.model_fields else None
            inner = [one for one in get_args(here) if one is not NoneType]
            if len(inner) == 1 and hasattr(inner[0], "model_fields"):
                here = inner[0]  # a table that may be left out
        elif kinds:
            here = kinds.get(str(part))
        else:  # a table by name: dict[str, model]
            here = get_args(here)[-1] if get_args(here) else None
    return here


def _model_at(model: type[Options], place: OptionPath) -> type[Options] | None:
    """The model whose options stand at `place`."""
    here = _annotation_at(model, place)
    return here if hasattr(here, "model_fields") else None


def kinds_of(annotation: Any) -> dict[str, type[Options]]:
    """The kinds of options that differ by their mode, by its name."""
    kinds = [one for one in get_args(annotation) if "mode" in getattr(one, "model_fields", {})]
    return {kind.model_fields["mode"].default: kind for kind in kinds}


def _as_written(model: type[Options], place: OptionPath) -> OptionPath:
    """The place as a person writes it: without the kind, which is no step of its own."""
    return tuple(
        part
        for number, part in enumerate(place)
        if part not in kinds_of(_annotation_at(model, place[:number]))
    )


def _allowed(owner: type[Options] | None, name: str) -> str:
    if owner is None or name not in owner.model_fields:
        return ""
    schema = owner.model_json_schema()["properties"][name]
    kinds = [_kind(one) for one in schema.get("anyOf", [schema])]
    return "must be " + " or ".join(kinds)


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(repr(value) for value in schema["enum"])
    if schema.get("type") in ("integer", "number"):
        noun = "a whole number" if schema["type"] == "integer" else "a number"
        low = schema.get("minimum")
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        below = " to below " if "exclusiveMaximum" in schema else " to "
        if low is None:
            return noun
        return f"{noun} of at least {low:g}" if high is None else f"{noun} from {low}{below}{high}"
    if schema.get("type") == "string":
        examples = " or ".join(repr(text) for text in schema.get("examples", []))
        return f"a text like {examples}" if examples else "a text"
    nouns = {"boolean": "true or false", "array": "a list", "object": "a table", "null": "left out"}
    return nouns.get(str(schema.get("type")), "a table")
