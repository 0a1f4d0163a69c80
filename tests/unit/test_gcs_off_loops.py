"""No event loop asks Ray's GCS: a lint over the shell, and what it sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_tidy import ROOT, files, name_of

# Each of these waits for the GCS: to look something up, to end or to make an actor or a task.
CALLS = {
    "ray.nodes",
    "ray.get_actor",
    "ray.kill",
    "ray.cancel",
    "ray.remote",
    "ray.cluster_resources",
    "ray.available_resources",
    "ray.util.list_named_actors",
    "ray_state.available_resources_per_node",
    "ray._private.state.state.get_draining_nodes",
    "state.actor_table",
    "get_draining_nodes",
    "list_actors",
    "list_nodes",
}
# Where they are made on threads.
HOME = "actors/cluster/gcs.py"

Place = tuple[str, str]


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node


def _called(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The calls that a function makes itself: not those of functions that it only defines."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(one, ast.Call):
            yield one.lineno, ast.unparse(one.func)
        waiting.extend(ast.iter_child_nodes(one))


def on_loops(sources: dict[str, str]) -> list[str]:
    """The calls of `sources` (by module) that an event loop would wait for, through any helper."""
    bodies: dict[Place, ast.AST] = {}
    known: dict[Place, Place] = {}
    for module, source in sources.items():
        tree = ast.parse(source)
        for name, node in _functions(tree):
            bodies[module, name], known[module, name] = node, (module, name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    at = (node.module, alias.name)
                    known[module, alias.asname or alias.name] = at

    def target(at: Place, called: str) -> Place:
        module, name = at
        if called.startswith("self.") and "." in name:
            here = module, f"{name.split('.')[0]}.{called.removeprefix('self.')}"
            if here in bodies:
                return here
        head, _, tail = called.rpartition(".")
        if head and (module, head) in known and (".".join(known[module, head]), tail) in bodies:
            return ".".join(known[module, head]), tail
        return known.get((module, called), (module, called))

    waits: set[Place] = set()
    while True:
        more = {
            at
            for at, node in bodies.items()
            if at not in waits
            and not isinstance(node, ast.AsyncFunctionDef)
            and any(c in CALLS or target(at, c) in waits for _, c in _called(node))
        }
        if not more:
            break
        waits |= more
    return sorted(
        f"{module}:{line}: {name} calls {called} on its event loop"
        for (module, name), node in bodies.items()
        if isinstance(node, ast.AsyncFunctionDef)
        for line, called in _called(node)
        if called in CALLS or target((module, name), called) in waits
    )


def test_no_event_loop_asks_the_gcs() -> None:
    sources = {
        f"pxrs_ray.{name_of(path).removesuffix('.py').replace('/', '.')}": path.read_text()
        for path in files({".py"}, "actors", "spark")
        if name_of(path) != HOME
    }
    assert len(sources) > 50
    assert on_loops(sources) == []


@pytest.mark.parametrize(
    "source",
    [
        "async def f():\n    ray.get_actor('a')",
        "def g():\n    return ray.nodes()\nasync def f():\n    g()",
        "class A:\n    def g(self):\n        ray.kill(1)\n    async def f(self):\n        self.g()",
        "def h():\n    ray.kill(1)\ndef g():\n    h()\nasync def f():\n    return [g()]",
    ],
)
def test_the_lint_sees(source: str) -> None:
    assert len(on_loops({"m": source})) == 1


def test_the_lint_sees_through_imports_and_lets_what_is_passed_on() -> None:
    helper = "def g():\n    ray.kill(1)"
    assert on_loops({"a": helper, "b": "from a import g\nasync def f():\n    g()"})
    assert not on_loops({"a": helper, "b": "from a import g\nasync def f():\n    await ask(g)"})
    assert not on_loops({"a": "async def f():\n    await ask(lambda: ray.kill(1))"})


def test_the_files_are_there() -> None:
    assert (Path(ROOT) / HOME).exists()
