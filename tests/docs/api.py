"""Makes the pages of docs/ on the Python API, from what its docstrings say. See reference.py."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from typing import Any

import pxrs_ray
from pxrs_ray.actors.client.group_dead_letters import DeadLetterList, GroupDeadLetters
from pxrs_ray.actors.client.group_quarantine import GroupQuarantine, KeyAside, KeysAside
from pxrs_ray.actors.client.plans import ShownPlan, ShownSeekPlan
from pxrs_ray.config.diff import Difference
from pxrs_ray.data.protocol import BufferStats, LogEnds
from pxrs_ray.group.events import Move
from pxrs_ray.group.ownership_events import PartitionChangeEvent
from pxrs_ray.group.seek_plan import PartitionSeek
from pxrs_ray.model import Change
from pxrs_ray.processing.quarantine_state import Parked
from pxrs_ray.producer.receipt import MessagePlace, Placed
from pxrs_ray.sink import SinkTransaction
from pxrs_ray.status.answers import (
    CallUnderWay,
    ConsumerStatus,
    GivenUp,
    History,
    PartitionStatus,
    QuarantineSize,
    QueueStatus,
    StoreStatus,
)
from pxrs_ray.status.places import BufferStatus, SpreadStep
from pxrs_ray.status.problem import Report, Severity
from pxrs_ray.status.stalls import Stall
from pxrs_ray.topology.move_plan import HomeMove, Leaving
from pxrs_ray.topology.move_steps import Moved
from pxrs_ray.topology.removal import Removal

MADE = "<!-- Made by `python -m tests.docs.reference --rewrite`: change the docstrings instead. -->"

PRODUCING = """```python
import ray
from pxrs_ray import PxrsConfig, QueueConfig, deploy

ray.init("local", num_cpus=1, include_dashboard=False)
shop = deploy(PxrsConfig(name="api", store="memory:", queues={"orders": QueueConfig(partitions=4)}))
with shop.producer("orders") as producer:
    receipt = producer.send("account-7", b"one", headers={"trace": b"7"}, id="order-1")
    stored = receipt.result(30)  # returns when the message is in the log
    assert stored.offset == 0
    producer.send_batch(["a", "b"], ["two", "three"]).result(30)
shop.delete()
```"""
HANDLERS = '''```python
from pxrs_ray import Delivery, PxrsConfig, QueueConfig
from pxrs_ray.testing import TestTopology


class Charge:
    def __init__(self, currency: str) -> None:  # settings = { currency = "EUR" }
        self.currency, self.sums = currency, dict[bytes, int]()

    def on_assigned(self, partition: int, checkpoint: int) -> None:
        """A partition is ours now."""

    def handle(self, message: Delivery) -> None:
        assert message.context.attempt == 1
        self.sums[message.key] = self.sums.get(message.key, 0) + int(message.payload)


with TestTopology(PxrsConfig(queues={"orders": QueueConfig(partitions=4)})) as t:
    t.group("billing", Charge, queue="orders", settings={"currency": "EUR"})
    t.send("orders", "account-7", "3")
    t.run_until_idle()
    assert len(t.delivered("billing")) == 1
```'''
CONSUMING = """```python
import ray
from pxrs_ray import PxrsConfig, QueueConfig, QueueReader, deploy

ray.init("local", num_cpus=1, include_dashboard=False)
shop = deploy(PxrsConfig(name="api", store="memory:", queues={"orders": QueueConfig(partitions=1)}))
with shop.producer("orders") as producer:
    for number in range(3):
        producer.send("account-7", f"order {number}")
with shop.group("audit", queue="orders").consumer() as consumer:
    seen = []
    while len(seen) < 3:
        batch = consumer.poll(10)
        seen += [message.payload for message in batch or ()]
    consumer.commit()
reader = QueueReader.of(shop, "orders")  # a look that no group notices
reader.from_start()
assert [message.payload for message in reader.messages(follow=False)] == seen
shop.delete()
```"""
OPERATING = """```python
from datetime import timedelta

import ray
from pxrs_ray import PxrsConfig, QueueConfig, attach, deploy

ray.init("local", num_cpus=2, include_dashboard=False)
deploy(PxrsConfig(name="api", store="memory:", queues={"orders": QueueConfig(partitions=4)}))
shop = attach("api")  # in any other process
billing = shop.group("billing", queue="orders").start(lambda message: None, consumers=1)
billing.scale(2)
assert len(billing.plan(3).moves) >= 1  # what a third consumer would take
assert billing.plan_seek(timedelta(minutes=30)).skips == 0
status = billing.status()
assert status.wanted == 2 and status.lag == 0 and not status.problems
shop.delete()
```"""

PAGES: dict[str, tuple[str, str, str, tuple[Any, ...]]] = {
    "api_producing.md": (
        "Python: producing",
        "Producers are made by `Topology.producer`. From Spark: [spark](spark.md).",
        PRODUCING,
        (
            pxrs_ray.Producer,
            pxrs_ray.Receipt,
            MessagePlace,
            pxrs_ray.BatchReceipt,
            Placed,
            pxrs_ray.Message,
            pxrs_ray.Replies,
            pxrs_ray.Reply,
        ),
    ),
    "api_handlers.md": (
        "Python: handlers",
        "A handler is a function of one message or one batch, `async` or not, or a class with "
        "`handle` or `handle_batch` and, where it wants them, `on_prepare(partition, checkpoint)`, "
        "`on_assigned(partition, checkpoint)`, `on_revoked(partition)` and `close()`. It takes "
        "batches where its one parameter is annotated `DeliveredBatch`, or its method is called "
        "`handle_batch`. What an exception means: [processing](processing.md).",
        HANDLERS,
        (
            pxrs_ray.Delivery,
            pxrs_ray.DeliveredBatch,
            pxrs_ray.Context,
            SinkTransaction,
            pxrs_ray.SinkCursor,
            pxrs_ray.AsyncSinkCursor,
            pxrs_ray.RetryAfter,
        ),
    ),
    "api_consuming.md": (
        "Python: consuming in a program of your own",
        "Members of a group are made by `Group.consumer`. A `QueueReader` reads without being one.",
        CONSUMING,
        (pxrs_ray.PullConsumer, pxrs_ray.QueueReader, LogEnds, pxrs_ray.Notifications),
    ),
    "api_operating.md": (
        "Python: operating",
        "`deploy` starts a topology, `attach` finds a running one. Both answer a `Topology`. "
        "Handles hold no state: they can be pickled, and used in any process of the cluster.",
        OPERATING,
        (
            pxrs_ray.deploy,
            pxrs_ray.attach,
            pxrs_ray.Topology,
            pxrs_ray.Group,
            GroupDeadLetters,
            DeadLetterList,
            pxrs_ray.Letter,
            GroupQuarantine,
            KeysAside,
            KeyAside,
            Parked,
            ShownSeekPlan,
            PartitionSeek,
            ShownPlan,
            Move,
            History,
            Change,
            pxrs_ray.TopologyStatus,
            QueueStatus,
            BufferStatus,
            SpreadStep,
            StoreStatus,
            pxrs_ray.GroupStatus,
            QuarantineSize,
            PartitionStatus,
            Stall,
            ConsumerStatus,
            CallUnderWay,
            GivenUp,
            pxrs_ray.Problem,
            Severity,
            Report,
            BufferStats,
            Removal,
            Leaving,
            HomeMove,
            Moved,
            Difference,
            pxrs_ray.partition_changes,
            PartitionChangeEvent,
        ),
    ),
}
# What is answered, and read: of what it has beside its fields, only properties are told.
READ_ONLY = (
    *(BufferStats, BufferStatus, CallUnderWay, Change, Difference, GivenUp, HomeMove, KeyAside),
    *(Leaving, LogEnds, Move, Moved, Parked, PartitionChangeEvent, QuarantineSize, Removal, Report),
    *(Severity, ShownPlan, ShownSeekPlan, SpreadStep, Stall, StoreStatus),
)
# What a handle has for our own use.
NOT_TOLD = frozenset(
    {"note_deployed", "keep_document", "document", "queue_spec", "producer_with", "begin_producer"}
)


def api_pages() -> dict[str, str]:
    """Every page of the API by its name."""
    return {name: "\n".join(_page(*page)) for name, page in PAGES.items()}


def _page(title: str, text: str, example: str, things: tuple[Any, ...]) -> Iterator[str]:
    yield from (f"# {title}", MADE, "", text, "", example)
    for thing in things:
        name = thing.__name__
        door = "pxrs_ray" if name in pxrs_ray.__all__ else ""
        yield from ("", f"## `{name}`", "")
        if door:
            yield from (f"`from pxrs_ray import {name}`", "")
        if inspect.isfunction(thing):
            yield from (f"`{name}{_signature(thing)}`", "", _text(thing))
        else:
            yield from _class(thing)
    yield ""


def _class(kind: type) -> Iterator[str]:
    if issubclass(kind, Exception):
        yield from (f"`{kind.__name__}{_signature(kind)}`", "")
    yield _text(kind)
    fields = _fields(kind)
    if fields:
        told = "Values" if issubclass(kind, Enum) else "Fields"
        yield from ("", f"{told}: " + ", ".join(f"`{name}`" for name in fields) + ".")
    members = [(name, made) for name, made in _members(kind) if name not in fields]
    if kind in READ_ONLY:
        members = [each for each in members if isinstance(each[1], property | cached_property)]
    if members:
        yield from ("", "| name | what it is |", "|---|---|")
    for name, made in members:
        called = made.fget if isinstance(made, property) else made
        called = called.func if isinstance(called, cached_property) else called
        called = getattr(called, "__func__", called)
        shown = name if isinstance(made, property | cached_property) else name + _signature(called)
        yield f"| `{shown.replace('|', chr(92) + '|')}` | {_text(called, one_line=True)} |"


def _fields(kind: type) -> list[str]:
    """What an object has beside its methods and properties."""
    if issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.repr and field.init]
    else:
        names = list(inspect.get_annotations(kind))
    return [name for name in names if name[0] != "_"]


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Its public methods and properties, as they stand in the class, with a docstring each."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if (
            base.__module__.startswith("pxrs_ray")
            and base.__module__ != "pxrs_ray.status.answers.Shown"
        ):
            for name, made in vars(base).items():
                called = getattr(made, "fget", None) or getattr(made, "__func__", made)
                is_told = callable(called) or isinstance(made, cached_property)
                if name[0] != "_" and name not in NOT_TOLD and is_told and made.__doc__:
                    found[name] = made  # what a class says itself, not what it has from another
    yield from found.items()


def _signature(called: Any) -> str:
    """As it is called: without `self`, and without what is answered where that is None."""
    found = inspect.signature(called)
    parameters = [p for name, p in found.parameters.items() if name not in ("self", "cls")]
    text = str(found.replace(parameters=parameters)).replace("'", "")
    return text.removesuffix(" -> None")


def _text(thing: Any, *, one_line: bool = False) -> str:
    text = inspect.cleandoc(thing.__doc__ or "")
    # What stands in a class's docstring is Markdown to us: code that is indented becomes code.
    text = re.sub(r"(?m)^    (.+)$", r"`\1`", text) if one_line else text
    return " ".join(text.split()).replace("|", "\\|") if one_line else text
