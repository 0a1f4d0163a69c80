"""`Codec`: the one encoding of a type that is written down and read again.

Rules of this file. Whatever another life of a process reads (a file, a document of the registry)
has one codec, and every codec registers itself under a name that says where it lies. What comes
back equals what went in, types included. A property test runs over all of `CODECS`, so nobody has
to remember to write one. A JSON codec is derived from the type by pydantic: an enum comes back as
the enum, bytes as bytes, a number that is a key as a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pxrs_ray.errors import StoreSchemaError
from pxrs_ray.late_dataclass import dataclass

T = TypeVar("T")

CODECS: dict[str, Codec[Any]] = {}


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How `kind` becomes bytes and comes back.

    `decode` raises ValueError for what `encode` cannot have written; its caller adds which file or
    document it was, and what to do.
    """

    name: str
    kind: Any
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]

    def encode_text(self, value: T) -> str:
        """As text, for stores that keep texts."""
        return self.encode(value).decode()

    def decode_text(self, text: str) -> T:
        """What `encode_text` gave."""
        return self.decode(text.encode())


def from_json(data: bytes | str) -> Any:
    """What JSON says. Raises ValueError, also for what is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def register(codec: Codec[T]) -> Codec[T]:
    """Make a codec known to the tests of what is written down; names are unique."""
    known = CODECS.get(codec.name)
    if known is not None and known.kind is not codec.kind:
        raise ValueError(f"two codecs are called {codec.name!r}")
    CODECS[codec.name] = codec
    return codec


def check_form(document: str, form: int, known: int) -> None:
    """Refuse a document of the registry that newer code has written. Raises StoreSchemaError."""
    if form > known:
        raise StoreSchemaError(
            f"the registry's document {document!r} has form {form}, this code knows up to "
            f"{known}: use the newer version of pxrs-ray that wrote it"
        )


# A dataclass with bytes in it sets `__pydantic_config__ = AS_JSON`: JSON itself has no bytes.
AS_JSON: Any = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_inf_nan": "constants",
}


def json_codec(name: str, kind: Any, *, indent: int | None = None) -> Codec[Any]:
    """A registered codec of JSON for a dataclass, or for a container of plain types."""
    adapter: Any = None

    def adapted() -> Any:
        # Made at the first use: pydantic takes milliseconds, and most processes read few types.
        nonlocal adapter
        if adapter is None:
            from pydantic import TypeAdapter

            adapter = TypeAdapter(kind)
        return adapter

    def encode(value: Any) -> bytes:
        return bytes(adapted().dump_json(value, indent=indent))

    def decode(data: bytes) -> Any:
        from pydantic import ValidationError

        try:
            return adapted().validate_json(data)
        except ValidationError as error:
            # One line, and nothing of the input: it may hold a secret.
            wrong = error.errors(include_url=False, include_input=False, include_context=False)
            found = (": ".join((*map(str, each["loc"]), each["msg"])) for each in wrong[:3])
            raise ValueError("; ".join(found)) from None

    return register(Codec(name, kind, encode, decode))
