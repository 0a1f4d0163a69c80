"""`pxrs produce`: sends messages from arguments, stdin or a file into a queue."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pxrs_ray.cli._options import AsJson, QueueName, TopologyName, moment_ms

if TYPE_CHECKING:
    from pxrs_ray.actors.client.producer import Producer
    from pxrs_ray.cli._sources import Columns, HeaderPairs
    from pxrs_ray.producer.receipt import BatchReceipt, Receipt

Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="NAME=VALUE",
        help="A header of all messages, before their own; may be repeated.",
        show_default=False,
    ),
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        help="The time of all messages without their own, like 2026-05-01T12:00; default: now.",
        show_default=False,
    ),
]
KeyColumnOption = Annotated[str, typer.Option(help="jsonl, csv, parquet: the key column.")]
PayloadColumn = Annotated[
    str, typer.Option(help="jsonl, csv, parquet: the payload column; else the whole row.")
]
ScopeOption = Annotated[
    str | None, typer.Option(help="The tenant or label of all messages, if the queue has them.")
]
ScopeColumn = Annotated[
    str | None, typer.Option(help="jsonl, csv, parquet: the tenant or label column.")
]
Delay = Annotated[
    float | None,
    typer.Option(help="Deliver them so many seconds from now.", show_default=False),
]
DeliverAt = Annotated[
    str | None,
    typer.Option(help="Deliver them at that time, like 2026-05-01T12:00.", show_default=False),
]
ProducerName = Annotated[
    str | None, typer.Option(help="Send as the producer of this name; fences an earlier one.")
]

_Due = tuple[float | None, int | None]
_TWICE = "give messages as arguments or with --file, not both"
_NO_FILE = "--format says how a file or stdin is read: leave it out beside messages"


def command(
    queue: QueueName,
    messages: Annotated[
        list[str] | None, typer.Argument(help="Payloads; default: the lines of stdin.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of all messages.")] = None,
    separator: Annotated[
        str | None,
        typer.Option("--separator", "-s", help="The text before it is the key: -s: 'a7:hello'."),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="Read messages from a file; - is stdin.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--format", help="lines, jsonl, csv or parquet; default: by file name."),
    ] = None,
    key_column: KeyColumnOption = "key",
    payload_column: PayloadColumn = "payload",
    scope: ScopeOption = None,
    scope_column: ScopeColumn = None,
    header: Header = None,
    timestamp: Timestamp = None,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    producer_id: ProducerName = None,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Send messages to QUEUE, and return when all of them are stored.

    Rows of files may have the columns timestamp_ms, headers and id beside key and
    payload: what `pxrs tail --json` prints can be sent again as it is.
    """
    from pxrs_ray.cli import _sources
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer, say
    from pxrs_ray.errors import UsageError

    if messages and (file or kind):
        raise UsageError(_TWICE if file else _NO_FILE)
    if messages:
        columns = _sources.texts(messages, key, separator)
    else:
        path = file or _sources.STDIN
        if file is None and sys.stdin.isatty():
            say("a line is a message; Ctrl-D ends", error=True)
        kind = _sources.format_of(path, kind)
        names = _sources.Names(key_column, payload_column, scope_column)
        columns = _sources.rows(path, kind, key, separator, names)
    common = tuple(_sources.header(each) for each in header or ())
    at_ms = moment_ms(timestamp) if timestamp is not None else None
    due, columns = _due(delay, deliver_at), _begun(columns)
    began_s = time.perf_counter()
    with running(topology).producer(queue, producer_id=producer_id) as producer:
        sent, size_bytes = _send(producer, columns, scope, at_ms, common, due)
    seconds = time.perf_counter() - began_s
    sum_up = {"queue": queue, "messages": sent, "bytes": size_bytes, "seconds": round(seconds, 3)}
    answer(sum_up, as_json, lambda: f"{sent:,} message{'s are' if sent != 1 else ' is'} in {queue}")


def _begun(columns: Iterable[Columns]) -> Iterator[Columns]:
    """The same; what is wrong with the first of them is told now, before anybody is asked."""
    columns = iter(columns)
    first = list(islice(columns, 1))
    return chain(first, columns)


def _send(
    producer: Producer,
    columns: Iterable[Columns],
    scope: str | None,
    at_ms: int | None,
    common: HeaderPairs,
    due: _Due,
) -> tuple[int, int]:
    """Send all and wait until it is stored; answers how many messages and bytes that were."""
    from pxrs_ray.errors import UsageError

    receipts: list[Receipt | BatchReceipt] = []
    sent, size_bytes, wrong = 0, 0, None
    columns = iter(columns)
    while True:
        try:
            some = next(columns, None)
        except UsageError as error:
            wrong = error
            break
        if some is None:
            break
        receipts += _sent(producer, some, scope, at_ms, common, due)
        sent += len(some.payloads)
        size_bytes += sum(map(len, some.payloads))
    producer.flush()
    for receipt in receipts:
        receipt.result(0)
    if wrong is not None:
        raise UsageError(f"{wrong}; the {sent:,} messages before it are sent") from wrong
    return sent, size_bytes


def _sent(
    producer: Producer,
    some: Columns,
    scope: str | None,
    at_ms: int | None,
    common: HeaderPairs,
    due: _Due,
) -> list[Receipt | BatchReceipt]:
    """Send some; with a delay one by one."""
    headers = [common + each for each in some.headers]
    dated_ms = [at_ms if each is None else each for each in some.timestamps_ms]
    if due == (None, None):
        batch = producer.send_batch(
            some.keys,
            some.payloads,
            scopes=_given([scope if each is None else each for each in some.scopes]),
            timestamps=_given(dated_ms),
            headers=headers if any(headers) else None,
            ids=_given(some.ids),
        )
        return [batch]
    rows = zip(some.keys, some.payloads, headers, dated_ms, some.ids, strict=True)
    return [producer.send(*row, delay_s=due[0], deliver_at_ms=due[1]) for row in rows]


def _due(delay: float | None, deliver_at: str | None) -> _Due:
    """When they are due, as `Producer.send` takes it; what is wrong with it is told now."""
    from pxrs_ray.clock import wall_ms
    from pxrs_ray.data.delay import due_at

    due = (delay, None if deliver_at is None else moment_ms(deliver_at))
    if due != (None, None):
        due_at(*due, wall_ms())
    return due


def _given(column: list[Any]) -> list[Any] | None:
    """A column in which somebody has said something."""
    return column if any(each is not None for each in column) else None
