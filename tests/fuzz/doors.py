"""Every door that takes bytes or texts of somebody else's."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from pxrs_ray.actors.client import group
from pxrs_ray.cli import _sources
from pxrs_ray.cli._page_source import RaySource
from pxrs_ray.cli.seek import place
from pxrs_ray.cli.tail import json_line, text_line
from pxrs_ray.clock import Instant
from pxrs_ray.config import PxrsConfig
from pxrs_ray.errors import ConfigError, LogCorrupted, PxrsError, UsageError
from pxrs_ray.group.seek_plan import SeekPlan
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.producer.accumulator import Accumulator
from pxrs_ray.producer.sender import Sender
from pxrs_ray.sources.file import FileSource
from pxrs_ray.sources.soundness import sound
from pxrs_ray.store.url import parse_store_url
from pxrs_ray.topology.seal import Seal
from tests.fuzz import links
from tests.fuzz.knocking import Door, in_file, plain, text_of
from tests.fuzz.logs import body, frame, log_folder, sample_body, sample_frame
from tests.fuzz.page import REQUESTS, http
from tests.settings import producer_limits, sender_limits


def names(data: bytes) -> None:
    """A name wherever a name can stand."""
    text = text_of(data)
    for options in (
        {"name": text},
        {"name": "shop", "queues": {text: {"partitions": 2}}},
        {"name": "shop", "queues": {"q": {}}, "groups": {text: {"queue": "q"}}},
        {"name": "shop", "queues": {"q": {"source": text}}},
        {"name": "shop", "prefix": text, "key_prefix": text},
    ):
        try:
            PxrsConfig(store="memory:", **options)  # type: ignore[arg-type]
        except ConfigError as refused:
            assert str(refused)


def messages(data: bytes) -> None:
    """A message of these bytes: what is accepted can be sent."""
    rng = random.Random(data)
    text = text_of(data)
    accumulator = Accumulator(
        PartitioningSpec(1).partitioner(), Sender(1, sender_limits()), producer_limits()
    )
    stamp = rng.choice([None, int.from_bytes(data[:9], "little", signed=True)])
    try:
        accumulator.add(
            rng.choice([data, text, None]),
            rng.choice([data, text]),
            Instant(1, 1),
            rng.choice([None, {text: data}, [(text, data)], {text: text}]),
            stamp,
            rng.choice([None, text]),
        )
    except PxrsError:
        return
    accumulator.close_open(1_000)


def shown(data: bytes) -> None:
    """A message on a terminal."""
    from pxrs_ray.model import Message

    stamp = int.from_bytes(data[:8], "little", signed=True)
    made = Message(0, 0, data, data, stamp, ((text_of(data), data),), text_of(data))
    for line in (text_line(made), json_line(made)):
        assert "\n" not in line and "\x1b" not in line
        line.encode()


def read_source(path: Path) -> None:
    source = FileSource(path, "key")
    try:
        for record in source.read(0, 100, 0):
            sound(record)
    finally:
        source.close()


def produced(kind: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        return list(_sources.rows(str(path), kind, None, None, _sources.Names(scope="scope")))

    return read


class _AnyGroup:
    name = "g"

    def __init__(self, topology: str, name: str) -> None:
        self.dead_letters = self

    def retry(self, **chosen: Any) -> int:
        return 0

    def scale(self, consumers: int) -> None: ...

    def seek(self, wanted: Any, partitions: Any) -> dict[int, int]:
        return {}

    def plan_seek(self, wanted: Any, partitions: Any) -> SeekPlan:
        return SeekPlan("g", ())


def acted(data: bytes) -> None:
    """A value of the page's own form."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = text_of(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "Group", _AnyGroup)
        source = RaySource(SimpleNamespace(name="t"))  # type: ignore[arg-type]
        for action in ("scale", "seek", "plan_seek", "retry_letter"):
            try:
                source.act(action, "g", value)
            except PxrsError as refused:
                assert str(refused)


def _codec(decode: Callable[[bytes], object]) -> Callable[[], Any]:
    return plain(decode, ValueError)


TOML = (
    b'name = "shop"\nstore = "memory:"\n[queues.q]\npartitions = 4\n'
    b'[groups.g]\nqueue = "q"\nfailure_policy = "dead_letter"\n'
)
SEEKS = (b"start", b"17", b"2026-05-01T12:00", b"9" * 5_000, "\u00b2".encode(), b"0001-01-01")
HALF_A_KEY = b'{"key": "\\ud800"}\n'
JSONL = b'{"key": "a", "payload": {"b": 1}, "scope": "x"}\n{"key": null, "payload": "p"}\n'


def doors() -> tuple[Door, ...]:
    """Every one of them."""
    from pxrs_ray.codec import CODECS

    usual = (ValueError, PxrsError)
    url_or_error = plain(lambda data: parse_store_url(text_of(data), {}), ConfigError)
    seal = Seal([b"k" * 32])
    sealed = seal.sealed("p", "text").encode()
    return (
        Door("a name", plain(names), (b"shop", b"a.b", b"file:///x?key=a", b"redis://h/0")),
        Door("a message", plain(messages), (b"key", "\u00e9".encode())),
        Door("a message on a terminal", plain(shown), (b"\x1b[2J", b"plain")),
        Door("a configuration", in_file("f.toml", PxrsConfig.from_toml, ConfigError), (TOML,)),
        Door(
            "the url of a store",
            url_or_error,
            (b"redis://u:p@h:1/0?tls=true", b"redis://[h", b"sqlite:///x"),
        ),
        Door(
            "where to seek",
            plain(lambda data: place(text_of(data)), typer.BadParameter),
            SEEKS,
        ),
        Door("a value of the page", plain(acted), (*SEEKS, b"3", b"true", b'"start"', b"[1]")),
        Door(
            "lines of a source",
            in_file("s", read_source),
            (JSONL, b'{"key": "\\ud800"}\n', b"[" * 50_000),
        ),
        *(
            Door(f"what is produced, {kind}", in_file("p", produced(kind), UsageError), (sample,))
            for kind, sample in (
                ("lines", b"a\nb\n"),
                ("jsonl", JSONL),
                ("jsonl", b'{"a": ' * 50_000),
                ("csv", b"key,payload\na,b\n"),
                ("parquet", _parquet()),
            )
        ),
        Door(
            "a sealed document",
            plain(lambda data: _never_ours(seal, data, sealed)),
            (sealed, sealed[:20]),
        ),
        Door("a frame", plain(frame, LogCorrupted), (sample_frame(),)),
        Door("a frame's body", plain(body, LogCorrupted), (sample_body(),)),
        Door("the files of a log", log_folder, (sample_frame(), b"", bytes(500)), costly=20),
        Door("http", http, REQUESTS, costly=20),
        *_links(),
        *(
            Door(f"codec, {name}", plain(codec.decode, *usual), (b"{}", b"[]", b"null", b"0"))
            for name, codec in sorted(CODECS.items())
        ),
    )


def _links() -> tuple[Door, ...]:
    return (
        Door("messages of a link", plain(links.messages), links.MESSAGE_SAMPLES),
        Door("connections", plain(links.connections), links.CONNECTION_SAMPLES, costly=2),
        Door(
            "connections of other nodes",
            plain(links.far_connections),
            links.CONNECTION_SAMPLES,
            costly=2,
        ),
        Door(
            "connections with TLS",
            plain(links.tls_connections),
            (links.hello(), links.hello()[:50], *links.CONNECTION_SAMPLES[:2]),
            costly=4,
        ),
    )


def _never_ours(seal: Seal, data: bytes, sealed: bytes) -> None:
    text, ours = seal.opened("p", text_of(data))
    assert not ours or data == sealed, text


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table({"key": ["a"], "payload": [b"x"]}), sink)
    return sink.getvalue()
