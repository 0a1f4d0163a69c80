"""`dataclass`, as Python's own, whose methods are made when somebody first asks for them.

Rules of this file. Who starts a process waits for its imports, and half of what ours take is that
Python writes and compiles five methods for each of some hundred dataclasses, of which most are
never called there. So a class is made with its fields and slots, and each method of its own is
compiled by Python's dataclass when it is first looked up, and stands in the class from then on:
whatever is asked of the class, also its signature, is answered as Python's own would. Where Python
keeps `frozen` it says no: who derives a dataclass of Python's own from one of these gets no frozen
one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, eq=True, repr=True, frozen=False, **kinds):  # noqa: A002
        """What `dataclasses.dataclass` makes, with `kinds` among slots, kw_only, match_args."""
        if cls is None:
            return lambda cls: dataclass(cls, eq=eq, repr=repr, frozen=frozen, **kinds)
        own = dict(cls.__dict__)
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **kinds)
        wanted = ["__init__", *["__repr__"] * repr, *["__eq__"] * eq]
        explicit_hash = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
        if eq and not explicit_hash:
            made.__hash__ = _Later(made, "__hash__", frozen) if frozen else None
        for name in wanted:
            if name not in own:
                setattr(made, name, _Later(made, name, frozen))
        if frozen:
            _freeze(made, own, kinds.get("slots", False))
        return made


class _Later:
    """Stands for a method of a dataclass until it is looked up."""

    __slots__ = ("_cls", "_frozen", "_name")

    def __init__(self, cls: type, name: str, frozen: bool) -> None:
        self._cls, self._name, self._frozen = cls, name, frozen

    def __get__(self, instance: object, owner: type) -> Any:
        method = _made(self._cls, self._name, self._frozen)
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)


def _made(cls: type, name: str, frozen: bool) -> Any:
    """The method that Python's dataclass writes for such a class."""
    fields = dataclasses.fields(cls)
    after = {"__post_init__": None} if hasattr(cls, "__post_init__") else {}
    twin = dataclasses.make_dataclass(
        cls.__name__,
        [(field.name, field.type, field) for field in fields],
        namespace=after,
        init=name == "__init__",
        repr=name == "__repr__",
        eq=name in ("__eq__", "__hash__"),
        # These decide how a field is set, and whether there is a hash.
        frozen=name in ("__init__", "__hash__") and frozen,
        slots="__slots__" in cls.__dict__,
    )
    method = twin.__dict__[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    method.__module__ = cls.__module__
    return method


def _freeze(cls: type, own: dict[str, Any], slots: bool) -> None:
    """Let nothing be set in an instance but by its `__init__`."""
    named = frozenset(field.name for field in dataclasses.fields(cls))

    def refused(doing: str, go_on: str) -> Callable[..., None]:
        def method(self: object, name: str, *value: object) -> None:
            if type(self) is cls or name in named:
                raise dataclasses.FrozenInstanceError(f"cannot {doing} field {name!r}")
            getattr(super(cls, self), go_on)(name, *value)

        method.__name__, method.__qualname__ = go_on, f"{cls.__qualname__}.{go_on}"
        return method

    for doing, name in (("assign to", "__setattr__"), ("delete", "__delattr__")):
        if name in own:
            raise TypeError(f"{cls.__name__} is frozen and has a {name} of its own")
        setattr(cls, name, refused(doing, name))
    if slots:
        for name, method in (("__getstate__", _state), ("__setstate__", _set_state)):
            if name not in own:
                setattr(cls, name, method)


def _state(self: Any) -> list[Any]:
    """What is pickled of a frozen one with slots: as Python's own, for both are read."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=False):
        object.__setattr__(self, field.name, value)
