"""Import the package etcd3 on a current protobuf.

Rules of this file. etcd3 0.12, its last release, carries message classes that protoc 3.6 made,
and protobuf 4 and later refuse to load them ("Descriptors cannot be created directly"). The
environment variable that allows it makes all of protobuf slow and must be set before anything
imports it. So the three generated modules are made here instead, from the very descriptors that
they carry, in a descriptor pool of their own, where they cannot clash with another etcd client's
files of the same names. An etcd3 that was generated anew, or a protobuf 3, needs none of this.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
import types
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_GENERATED = ("kv_pb2", "auth_pb2", "rpc_pb2")
_DESCRIPTOR = re.compile(r"serialized_pb=_b\(('(?:[^'\\]|\\.)*')\)")
_LOCK = threading.Lock()


def import_etcd3() -> Any:
    """The module etcd3, usable. Raises ModuleNotFoundError when it is not installed."""
    with _LOCK:
        if sys.modules.get("etcd3") is not None:
            return sys.modules["etcd3"]
        spec = find_spec("etcd3")  # which does not run it
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("No module named 'etcd3'", name="etcd3")
        folder = Path(spec.submodule_search_locations[0]) / "etcdrpc"
        made = _made_modules(folder)
        sys.modules.update(made)
        try:
            return import_module("etcd3")
        except BaseException:
            for name in made:
                sys.modules.pop(name, None)
            raise


def _made_modules(folder: Path) -> dict[str, types.ModuleType]:
    """The generated modules, made from their descriptors; none when they load as they are."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    sources = {name: (folder / f"{name}.py").read_text(encoding="latin-1") for name in _GENERATED}
    literals = {name: _DESCRIPTOR.search(source) for name, source in sources.items()}
    if not hasattr(message_factory, "GetMessageClass") or None in literals.values():
        return {}
    pool = descriptor_pool.DescriptorPool()
    made = {}
    for name, literal in literals.items():
        assert literal is not None
        content = ast.literal_eval(literal.group(1)).encode("latin-1")
        pool.AddSerializedFile(content)
        file = pool.FindFileByName(descriptor_pb2.FileDescriptorProto.FromString(content).name)
        module: Any = types.ModuleType(f"etcd3.etcdrpc.{name}")
        module.DESCRIPTOR = file
        for message, descriptor in file.message_types_by_name.items():
            setattr(module, message, message_factory.GetMessageClass(descriptor))
        for enum in file.enum_types_by_name.values():
            for value in enum.values:
                setattr(module, value.name, value.number)
        made[module.__name__] = module
    return made
