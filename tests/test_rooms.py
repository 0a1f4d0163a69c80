"""The order of the rooms: who may import whom, in the product, imports in functions included.

A room is a folder of `pxrs_ray` or of `actors`; the modules beside `pxrs_ray/__init__.py` are the
base. A room imports only rooms of the rows above its own. So there is no cycle, and whoever changes
a room knows who can notice.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_tidy import ROOT, files, name_of

ROWS = (
    ("base",),
    ("supervision",),
    ("data",),
    ("partitioning", "store", "log", "scaling", "interop"),
    ("replication",),
    ("processing", "producer", "sources", "sink", "topology"),
    ("group", "status", "feed"),
    ("consumer", "config", "dashboard"),
    ("tenants", "testing"),
    ("actors",),
    ("actors.cluster",),
    ("actors.buffer",),
    ("actors.consumer",),
    ("actors.coordinator",),
    ("actors.client",),
    ("front",),
    ("spark",),
    ("demo",),
    ("cli",),
    ("script",),
)
# Module, and what it imports from a later room; each in a function or for a reason.
EXCEPTIONS = {
    ("actors/buffer/coordinator_recovery.py", "actors.coordinator"): (
        "a buffer makes the coordinator anew, and so names its class"
    ),
    ("actors/consumer/dead_letter_sender.py", "actors.client"): (
        "a consumer sends dead letters as any client does"
    ),
    ("actors/consumer/delay_mover.py", "actors.client"): (
        "a consumer moves delayed messages as any client does"
    ),
    ("actors/consumer/reply_sender.py", "actors.client"): (
        "a consumer sends replies as any client does"
    ),
    ("actors/coordinator/tenant_router.py", "actors.client"): (
        "the router of tenants makes queues and groups as any client does"
    ),
}
FRONT = {"pxrs_ray/__init__.py": "front", "pxrs_ray/__main__.py": "script"}


def module_of(path: str) -> str:
    """The name by which a file is imported."""
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted if dotted.startswith("pxrs_ray") else f"pxrs_ray.{dotted}"


FILES = {module_of(name_of(path)): path for path in files({".py"}, "pxrs_ray", "actors", "spark")}


def room_of(module: str) -> str:
    """The room that a module is in."""
    path = FILES[module]
    if name_of(path) in FRONT:
        return FRONT[name_of(path)]
    parts = Path(name_of(path)).parts
    if parts[0] == "spark":
        return "spark"
    if parts[0] == "actors":
        return "actors" if len(parts) == 2 else f"actors.{parts[1]}"
    return "base" if len(parts) == 2 else parts[1]


def imported(source: str) -> Iterator[tuple[int, str]]:
    """The modules of ours that a source imports, wherever it does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module in FILES:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in FILES else node.module


def out_of_order(path: str, room: str, source: str) -> Iterator[str]:
    """Say which imports lead to a later room, or to another one of the same row."""
    row = {name: number for number, names in enumerate(ROWS) for name in names}
    for line, module in imported(source):
        target = room_of(module)
        if target in (room, "front") and (target == room or row[room] > row["front"]):
            continue
        if row[target] >= row[room] and (path, target) not in EXCEPTIONS:
            yield f"line {line}: {room} imports {module}, of the room {target}"


def test_every_room_has_its_place() -> None:
    rooms = {room_of(module) for module in FILES}
    assert sorted(rooms) == sorted(name for names in ROWS for name in names)


@pytest.mark.parametrize("module", sorted(FILES))
def test_rooms_import_one_another_in_one_order(module: str) -> None:
    path = FILES[module]
    assert list(out_of_order(name_of(path), room_of(module), path.read_text())) == []


def test_every_exception_is_one() -> None:
    row = {name: number for number, names in enumerate(ROWS) for name in names}
    for path, target in EXCEPTIONS:
        found = {room_of(module) for _, module in imported((ROOT / path).read_text())}
        assert target in found and row[target] > row[room_of(module_of(path))], path


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("base", "from pxrs_ray.log import log_manager"),
        ("log", "def f():\n    from pxrs_ray.store.sql import sqlite"),
        ("actors.cluster", "import pxrs_ray.actors.client.topology"),
        ("config", "from pxrs_ray.actors import names"),
    ],
)
def test_the_order_is_seen(room: str, source: str) -> None:
    assert list(out_of_order("somewhere.py", room, source))


@pytest.mark.parametrize("top", ["pxrs_ray", "actors", "spark"])
def test_no_file_name_occurs_twice_in_a_package(top: str) -> None:
    names = Counter(
        path.name
        for path in FILES.values()
        if name_of(path).startswith(f"{top}/")
        and "/cli/" not in name_of(path)  # these are the names of commands
    )
    del names["__init__.py"]
    names.pop("base.py", None)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", ["pxrs_ray", "pxrs_ray.spark", "pxrs_ray.testing"])
def test_no_module_bears_the_name_of_what_its_package_offers(package: str) -> None:
    """An import of such a module would put it in the place of what is offered."""
    offered = set(import_module(package).__all__)
    modules = {name.removeprefix(f"{package}.") for name in FILES if name.startswith(f"{package}.")}
    assert not offered & modules
