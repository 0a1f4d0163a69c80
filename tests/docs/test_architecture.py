"""The page for whoever changes the code names what there is; each word of it means one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.test_rooms import FILES, ROWS, room_of
from tests.test_tidy import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"`((?:pxrs_ray|actors|spark)/[\w/]+\.py)`\s+`([\w.]+)`", PAGE)
PATHS = sorted(set(re.findall(r"`((?:pxrs_ray|actors|spark|tests)/[\w/]+(?:\.py)?)`", PAGE)))
WORDS = [
    (cells[1].strip(), re.findall(r"`(\w+)`", cells[3]))
    for line in PAGE.partition("## Words")[2].partition("\n## ")[0].splitlines()
    if (cells := line.split("|"))[0] == "" and len(cells) == 5 and "`" in cells[3]
]
CLASSES = Counter(
    node.name
    for path in FILES.values()
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ClassDef)
)


def kinds(tree: ast.Module) -> Iterator[str]:
    """The classes of a module, and the other names that it gives to types."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            made = ast.unparse(node.value).partition("(")[0]
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                name = target.id if isinstance(target, ast.Name) else ""
                if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name) and made not in ("TypeVar", "ParamSpec"):
                    yield name


def defines(source: str, dotted: str) -> bool:
    """Whether a source defines a function, a class, or a method of a class."""
    body: list[ast.stmt] = ast.parse(source).body
    for name in dotted.split("."):
        found = [node for node in body if getattr(node, "name", None) == name]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


@pytest.mark.parametrize(("path", "name"), STEPS, ids=lambda value: value.rpartition("/")[2])
def test_each_step_of_a_walk_is_there(path: str, name: str) -> None:
    assert defines((ROOT / path).read_text(), name)


def test_the_four_walks_are_walks() -> None:
    assert len(STEPS) > 40
    assert not defines("class A:\n    def b(self): ...", "A.c")


@pytest.mark.parametrize("path", PATHS)
def test_each_place_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("word", "classes"), WORDS, ids=[word for word, _ in WORDS])
def test_each_word_names_one_class_of_each_name(word: str, classes: list[str]) -> None:
    assert classes, word
    assert {name: CLASSES[name] for name in classes} == dict.fromkeys(classes, 1)


def test_no_class_name_means_two_things() -> None:
    assert len(WORDS) >= 25
    names = Counter(name for path in FILES.values() for name in kinds(ast.parse(path.read_text())))
    assert [name for name, count in names.items() if count > 1 and name[0] != "_"] == []


def test_a_type_s_other_name_is_a_name_too() -> None:
    source = (
        "class A: ...\nPlace = tuple[str, int]\nT = TypeVar('T')\nMOST = 3\nOne: TypeAlias = A | T"
    )
    assert list(kinds(ast.parse(source))) == ["A", "Place", "One"]


def test_every_room_is_in_the_table() -> None:
    table = PAGE.partition("## The rooms")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([\w/]+)`", table)) | {"base", "front", "script", "actors"}
    rooms = {name.replace(".", "/") for names in ROWS for name in names}
    assert rooms <= told


# Words that once had several meanings: a class with such a word in its name is of these rooms.
ROOMS_OF = {
    "Lane": {"processing"},
    "Channel": {"consumer", "actors.consumer"},
    "Pack": {"processing", "config"},
    "Slot": {"base", "topology", "replication", "actors.coordinator"},
    "Tenant": {"tenants", "topology", "actors.client", "actors.coordinator"},
}


@pytest.mark.parametrize("word", ROOMS_OF)
def test_a_word_names_classes_of_its_own_rooms_only(word: str) -> None:
    found = {
        (room_of(module), name)
        for module, path in FILES.items()
        for name in kinds(ast.parse(path.read_text()))
        if re.search(rf"{word}(?![a-z]{{2}})", name) and name[0] != "_"
    }
    assert {pair for pair in found if pair[0] not in ROOMS_OF[word]} == set()
    assert found


def test_each_word_that_is_kept_apart_is_in_the_table() -> None:
    told = {word for words, _ in WORDS for word in words.split(", ")}
    assert {word.lower() for word in ROOMS_OF} <= told
