"""Loads Ray as far as a command needs it: in half of the time.

Rules of this file. A command asks actors and ends. So what Ray loads for cloud accelerators and for
checks of runtime environments is loaded when somebody looks into it, and Arrow is not loaded for
its serializers alone. Where Ray is built otherwise, it loads as it does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# Ray loads them at its top, and looks into them where it starts a cluster or prints tables.
LATER = ("jsonschema", "requests", "wcwidth", "yaml")


class _Later(ModuleType):
    """Stands for a module until something in it is asked for; then that is loaded in its place."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def load_ray() -> None:
    """Load Ray, unless it is loaded already."""
    if "ray" in sys.modules:
        return
    for name in LATER:
        if name not in sys.modules and find_spec(name) is not None:
            later = _Later(name)
            later.__spec__ = ModuleSpec(name, None)
            sys.modules[name] = later
    import ray  # noqa: F401

    with suppress(ImportError, AttributeError):
        from ray.util import serialization_addons

        serialization_addons.apply = partial(_with_arrow, serialization_addons.apply)


def _with_arrow(register: Callable[[object], None], context: object) -> None:
    """Register what Ray does for tables of Arrow, where this process has Arrow in use."""
    if "pyarrow" in sys.modules:
        register(context)
