"""Every function, class and constant of the product is reached from the product, or is documented.

A name counts as reached when it stands anywhere else in the product or in `examples`, also as a
string that names an attribute, or when README or `docs` name it. So this finds no method that
shares its name with a living one; what it finds is dead. What a module defines at its top is looked
at more closely: it counts only where that very module is named, so its name may occur elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.test_rooms import module_of
from tests.test_tidy import name_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("pxrs_ray", "actors", "spark")
# What ships for tests only.
TESTING = ROOT / "pxrs_ray" / "testing"

# What nobody in the product calls, and why it is there all the same.
REASONS = {
    "PartitionChangeEvent.gained": "beside `lost`, for who listens",
    "Batch.from_wire": "the inverse of `to_wire`: what judges a frame in every test of frames",
    "hash_column": "the hashes of a whole column, for who partitions elsewhere as we do",
    "REPLICAS": "a form that is kept is registered by being made",
    "AS_JSON": "a form that is kept is registered by being made",
    "HEADER": "a form that is kept is registered by being made",
    "INDEX": "a form that is kept is registered by being made",
    "FILE_HEADER": "a form that is kept is registered by being made",
    "SUSPICION": "a form that is kept is registered by being made",
    "SlotLeader.is_asking": "for who looks into a leader that is simulated",
    "SubmitStrategy.SEQUENTIAL_BY_TENANT": "named by its value, in a configuration",
}
# Methods that the base classes of others call: asyncio's protocols, click's groups, rich's console.
FOREIGN = {
    "connection_made",
    "connection_lost",
    "get_buffer",
    "buffer_updated",
    "pause_writing",
    "resume_writing",
    "list_commands",
    "get_command",
    "format_commands",
    "resolve_command",
    "render",
    "model_config",
}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if TESTING not in path.parents:
                yield path, ast.parse(path.read_text())


def words(tree: ast.AST) -> Iterator[str]:
    """Every name that is read below here, also in a string that is nothing but names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w.:]+", str(node.value)):
            yield from re.findall(r"\w+", str(node.value))


def defined(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """What is defined in a module, and in its classes: the qualified name, and where."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.decorator_list or isinstance(node, ast.ClassDef) or _is_plain(node):
                yield inside + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from defined(node, f"{inside}{node.name}.")
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield inside + target.id, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not inside:
            yield node.target.id, node


def _is_plain(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether nobody else is told of it by its decorators, as a validator or a command is."""
    plain = {"property", "classmethod", "staticmethod", "abstractmethod", "contextmanager"}
    return all(isinstance(d, ast.Name) and d.id in plain for d in node.decorator_list)


def unreached() -> Iterator[tuple[str, str]]:
    trees = list(modules())
    examples = [ast.parse(path.read_text()) for path in (ROOT / "examples").rglob("*.py")]
    read = Counter(word for _, tree in trees for word in words(tree))
    read.update(word for tree in examples for word in words(tree))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        read.update(re.findall(r"\w+", path.read_text()))
    for path, tree in trees:
        for qualified, node in defined(tree):
            name = qualified.rpartition(".")[2]
            if name.startswith("__") or name in FOREIGN:
                continue
            if read[name] <= sum(word == name for word in words(node)):
                yield qualified, f"{path.relative_to(ROOT)}:{node.lineno} {qualified}"


def named(tree: ast.AST, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Module and name of whatever a source takes out of the `known` modules."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known:
                    aliases[alias.asname or alias.name] = full
                else:
                    yield node.module or "", alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield aliases.get(node.value.id, ""), node.attr


def tops_unreached(trees: Mapping[str, ast.Module], told: Collection[str]) -> Iterator[str]:
    """What stands at the top of a module, and neither it nor another one goes by it."""
    taken = {pair for tree in trees.values() for pair in named(tree, trees)}
    for module, tree in trees.items():
        inside = [(statement, set(words(statement))) for statement in tree.body]
        read = Counter(word for _, found in inside for word in found)
        for name, node in defined(tree):
            if "." in name or name.startswith("__") or name in told or (module, name) in taken:
                continue
            own = next(found for statement, found in inside if statement is node)
            if read[name] <= (name in own and not isinstance(node, ast.Assign | ast.AnnAssign)):
                yield f"{module}.{name}"


def strings(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Every word of a string that is nothing but names: what is loaded by name."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and re.fullmatch(r"[\w.:]+", str(node.value)):
                yield from re.findall(r"\w+", str(node.value))


@cache
def dead_tops() -> frozenset[str]:
    trees = {module_of(name_of(path)): tree for path, tree in modules()}
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    told = {word for path in texts for word in re.findall(r"\w+", path.read_text())}
    dead = tops_unreached(trees, told | set(strings(trees.values())))
    return frozenset(name.rpartition(".")[2] for name in dead)


def test_what_stands_at_the_top_of_a_module_is_reached_by_its_own_name() -> None:
    assert dead_tops() <= REASONS.keys()


def test_a_name_that_lives_in_another_module_hides_none() -> None:
    trees = {
        "a": ast.parse("BOUND = 1\ndef f(): return BOUND\n"),
        "b": ast.parse("BOUND = 2\nx = 1"),
        "c": ast.parse("import a\nfrom a import f\nfrom b import x\nf(x)"),
    }
    assert list(tops_unreached(trees, ())) == ["b.BOUND"]


def test_everything_is_reached_from_the_product_or_documented() -> None:
    dead = [told for qualified, told in unreached() if qualified not in REASONS]
    assert not dead, "nothing in the product reaches:\n" + "\n".join(dead)


def test_each_exception_is_one() -> None:
    assert not REASONS.keys() - dead_tops() - {qualified for qualified, _ in unreached()}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(): f()", ["f"]),
        ("class A:\n    def m(self): return self.n\n    B = 1", ["A", "A.m", "A.B"]),
        ("@app.command()\ndef told(): ...\nX: int = 1", ["X"]),
    ],
)
def test_what_is_defined_is_seen(source: str, found: list[str]) -> None:
    assert [qualified for qualified, _ in defined(ast.parse(source))] == found
