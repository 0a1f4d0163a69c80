"""What is written down and read again without a codec that the property test knows.

Rules of this file. Read from the source: every place that turns bytes or text back into values
(json, pickle, struct, pydantic) is found, and each has to be in a module whose types are in
`CODECS`, or in `NOT_KEPT`, which says why what is read there was never written by a former life
of ours. A place that moves or appears is noticed, for both are counted by module and call.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pxrs_ray
from pxrs_ray.codec import CODECS

ROOT = Path(pxrs_ray.__file__).parent.parent
FOLDERS = ("pxrs_ray", "actors", "spark")
READERS = frozenset(
    (
        "json.load",
        "json.loads",
        "pickle.load",
        "pickle.loads",
        "cloudpickle.loads",
        "cloudpickle.load",
        "marshal.loads",
        "struct.unpack",
        "struct.unpack_from",
        "struct.iter_unpack",
        "struct.Struct",
        "Struct",
        "ast.literal_eval",
    )
)
READING_METHODS = frozenset(("validate_json", "model_validate_json", "parse_raw"))
# Module: why nothing that it reads was kept by us.
NOT_KEPT = {
    "pxrs_ray/codec.py": "the way itself",
    "pxrs_ray/config/sources.py": "the environment of this process, given by people",
    "pxrs_ray/cli/_sources.py": "messages that people give to a command",
    "pxrs_ray/partitioning/scalar_hashes.py": "numbers out of a key, to hash it",
    "pxrs_ray/store/etcd/import_etcd3.py": "the text of a library's module",
    "pxrs_ray/sources/file.py": "a file of the user's own",
    "actors/consumer/handler.py": "the user's object; its bytes are kept as they are, sealed",
    "actors/cluster/process_end.py": "the kernel's answer about a process",
    "actors/cluster/watchdog.py": "an answer of a process that lives now, on a socket",
    "spark/python_workers.py": "an error on its way from a Spark worker that lives now",
    "tests/simulation/command.py": "the arguments of a command",
}


def calls(source: str) -> Iterator[str]:
    """Each call in `source` that reads something that was written."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in READERS or name.rpartition(".")[2] in READING_METHODS:
            yield name


def readers() -> dict[str, list[str]]:
    """The modules that read what was written, and how."""
    found: dict[str, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if "__pycache__" not in name and path.resolve() == path:
                reading = sorted(calls(path.read_text()))
                if reading:
                    found[name] = reading
    return found


def registering() -> set[str]:
    """The modules that make a codec known."""
    for found in pkgutil.walk_packages(pxrs_ray.__path__, "pxrs_ray."):
        if found.name != "pxrs_ray.__main__":
            importlib.import_module(found.name)
    made = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.startswith("pxrs_ray.") and file is not None:
            values = list(vars(module).values())
            if any(value is codec for value in values for codec in CODECS.values()):
                made.add(Path(file).resolve().relative_to(ROOT).as_posix())
    return made


def untested() -> list[str]:
    """Everything that is read again and has no codec, or a codec without a property test."""
    from tests.unit.test_codecs import strategy_of

    covered = registering()
    wrong = [
        f"{module}: {', '.join(sorted(set(how)))}"
        for module, how in readers().items()
        if module not in covered and module not in NOT_KEPT
    ]
    for name, codec in sorted(CODECS.items()):
        try:
            strategy_of(codec).validate()
        except Exception as error:
            wrong.append(f"codec {name!r}: {error}")
    return wrong
