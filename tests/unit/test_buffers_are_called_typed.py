"""Nobody calls a buffer past `BufferClient`: neither a method of it by hand, nor by its name."""

from __future__ import annotations

import ast
from inspect import iscoroutinefunction

import pytest

from pxrs_ray.actors.buffer.buffer_actor import Buffer
from tests.test_tidy import files, name_of

ROOM = "actors/buffer/"
METHODS = {
    name
    for name, method in vars(Buffer).items()
    | {n: m for base in Buffer.__mro__ for n, m in vars(base).items()}.items()
    if iscoroutinefunction(method) and not name.startswith("_")
}
# Who names a buffer's actor without calling it, and for what.
NAMERS = {
    "actors/coordinator/buffer_start.py": "ends one that runs elsewhere than at home",
    "actors/coordinator/buffer_pool.py": "says what there is to be ended",
    "cli/restart.py": "ends one",
}


def calls_past_the_client(source: str) -> list[str]:
    """`x.METHOD.remote`, where METHOD is one of a buffer."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr == "remote"
        and (
            (isinstance(node.value, ast.Attribute) and node.value.attr in METHODS)
            or (isinstance(node.value, ast.Name) and node.value.id in METHODS)
        )
    ]


def names_a_buffer(source: str) -> bool:
    """Whether it makes the name by which a buffer's actor is found."""
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "names.buffer"
        for node in ast.walk(ast.parse(source))
    )


def the_product() -> dict[str, str]:
    found = files({".py"}, "pxrs_ray", "actors", "spark")
    texts = {name_of(path).removeprefix("pxrs_ray/"): path.read_text() for path in found}
    return {name: text for name, text in texts.items() if not name.startswith(ROOM)}


def test_nobody_calls_a_method_of_a_buffer_by_hand() -> None:
    assert {"append", "fetch", "ends", "open", "truncate", "ping", "passed"} <= METHODS
    found = {name: calls_past_the_client(text) for name, text in the_product().items()}
    assert len(found) > 200
    assert not {name: calls for name, calls in found.items() if calls}


def test_nobody_looks_a_buffer_up_by_its_name() -> None:
    assert {n for n, text in the_product().items() if names_a_buffer(text)} == set(NAMERS)


@pytest.mark.parametrize(
    "source",
    ["handle.append.remote(q, frames)", "self._handles[0].ends.remote(q)", "fetch.remote()"],
)
def test_the_rule_sees_a_call(source: str) -> None:
    assert calls_past_the_client(source)
