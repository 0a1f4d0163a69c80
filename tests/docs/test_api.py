"""The pages on the Python API are whole: every public name, and all that one gets by them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import pxrs_ray
from tests.docs.api import NOT_TOLD, PAGES, READ_ONLY, _fields, _members
from tests.docs.reference import DOCS, error_classes

THINGS = {thing.__name__: thing for page in PAGES.values() for thing in page[3]}
# Every option of these is in options.md.
OPTIONS = {"ByKey", "GroupConfig", "Ordered", "Packs", "PxrsConfig", "QueueConfig", "ScalingConfig"}
# Told in pages of their own: errors.md, python.md.
ELSEWHERE = {"quality": "python.md"}
# Plain values under names that say what they are, Python's own words, and what is passed on only.
PLAIN = frozenset(
    {
        *("Epoch", "Headers", "Incarnation", "LetterPlace", "MemberId", "Offset", "PartitionId"),
        *(
            "Any",
            "Callable",
            "Collection",
            "False",
            "ForwardRef",
            "Iterator",
            "Mapping",
            "None",
            "SeekTo",
        ),
        *("SeekTo", "Sequence", "True"),
        *("Effect", "Estimate", "Gap", "HandlerRef", "Kind", "Owners", "ReplicaStatus", "View"),
    }
)


def annotations_of(thing: Any) -> Iterator[tuple[str, str]]:
    """What a class or function takes and gives, by name."""
    if inspect.isfunction(thing):
        yield thing.__name__, str(inspect.signature(thing))
        return
    for name, made in _members(thing):
        if thing in READ_ONLY and not isinstance(made, property):
            continue
        called = made.fget if isinstance(made, property) else getattr(made, "func", made)
        yield name, str(inspect.signature(getattr(called, "__func__", called)))
    for name in _fields(thing):
        yield name, str(inspect.get_annotations(thing).get(name, ""))


@pytest.mark.parametrize("name", [name for name in pxrs_ray.__all__ if name[0] != "_"])
def test_every_public_name_is_told_where_one_looks_for_it(name: str) -> None:
    if name in THINGS or name in OPTIONS:
        return
    text = (DOCS / ELSEWHERE.get(name, "errors.md")).read_text()
    assert name in ELSEWHERE or name in error_classes() or name == "PxrsError"
    assert re.search(rf"\b{name}\b", text), name


@pytest.mark.parametrize("name", THINGS)
def test_all_that_it_takes_and_gives_is_told_too(name: str) -> None:
    told = THINGS.keys() | OPTIONS | PLAIN
    for of, text in annotations_of(THINGS[name]):
        unknown = set(re.findall(r"\b[A-Z]\w+", text)) - told
        assert not unknown, f"{name}.{of}: put {', '.join(sorted(unknown))} into tests/docs/api.py"


@pytest.mark.parametrize("name", THINGS)
def test_each_method_and_property_says_what_it_does(name: str) -> None:
    thing = THINGS[name]
    assert inspect.getdoc(thing), name
    public = [
        (member, made)
        for member, made in vars(thing).items()
        if member[0] != "_" and member not in NOT_TOLD
        if callable(made) or isinstance(made, property | classmethod | staticmethod)
    ]
    assert not [member for member, made in public if not made.__doc__], name


def test_what_a_user_writes_down_comes_from_the_front_door() -> None:
    """What is made, raised, caught or annotated in a user's own code; what is read only, is not."""
    door = set(pxrs_ray.__all__)
    raised = {"HandlerError", "NotHeld", "SinkConflict", "MessageTooLarge", "ProducerFenced"}
    annotated = {"Reply", "Replies", "BatchReceipt", "SinkCursor", "AsyncSinkCursor", "Letter"}
    asked = {"TopologyStatus", "GroupStatus", "Problem", "RegistryAway"}
    assert raised | annotated | asked | OPTIONS <= door
