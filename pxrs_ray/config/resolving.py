"""How options take over what they did not say themselves."""

from __future__ import annotations

from typing import Any, TypeVar

from pxrs_ray.config.declare import Options

Resolved = TypeVar("Resolved", bound=Options)


def with_values(options: Resolved, **values: Any) -> Resolved:
    """A checked configuration with other (checked) values, still knowing what was said itself."""
    every = {name: getattr(options, name) for name in type(options).model_fields}
    return type(options).model_construct(
        _fields_set=set(options.model_fields_set), **{**every, **values}
    )


def said(options: Resolved, **values: Any) -> Resolved:
    """As `_with`, and the values count as said: no topology's option goes before them."""
    made = with_values(options, **values)
    made.model_fields_set.update(values)
    return made


def resolved(options: Resolved, topology: Options, **others: Any) -> Resolved:
    """With what the topology, or `others`, say where the options themselves say nothing."""
    shared = {
        name: getattr(topology, name)
        for name in type(options).model_fields
        if name in type(topology).model_fields
    }
    unsaid = {
        name: value
        for name, value in {**shared, **others}.items()
        if name not in options.model_fields_set
    }
    return with_values(options, **unsaid)
