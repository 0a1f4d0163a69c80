"""`pxrs produce`: sends messages from arguments, stdin or a file into a queue."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, QueueName, TopologyName


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
    key_column: Annotated[str, typer.Option(help="jsonl, csv, parquet: the key column.")] = "key",
    payload_column: Annotated[
        str,
        typer.Option(help="jsonl, csv, parquet: the payload column; else the whole row."),
    ] = "payload",
    scope: Annotated[
        str | None,
        typer.Option(help="The tenant or label of all messages, if the queue has them."),
    ] = None,
    scope_column: Annotated[
        str | None, typer.Option(help="jsonl, csv, parquet: the tenant or label column.")
    ] = None,
    producer_id: Annotated[
        str | None,
        typer.Option(help="Send as the producer of this name; fences an earlier one."),
    ] = None,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Send messages to QUEUE, and return when all of them are stored."""
    from pxrs_ray.cli import _sources
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer, say
    from pxrs_ray.errors import UsageError

    if messages and file:
        raise UsageError("give messages as arguments or with --file, not both")
    if messages:
        columns = _sources.texts(messages, key, separator)
    else:
        path = file or _sources.STDIN
        if file is None and sys.stdin.isatty():
            say("a line is a message; Ctrl-D ends", error=True)
        kind = _sources.format_of(path, kind)
        names = _sources.Names(key_column, payload_column, scope_column)
        columns = _sources.rows(path, kind, key, separator, names)
    began_s = time.perf_counter()
    sent, size_bytes = 0, 0
    with running(topology).producer(queue, producer_id=producer_id) as producer:
        receipts = []
        for keys, payloads, scopes in columns:
            told = [scope if each is None else each for each in scopes]
            some = told if any(each is not None for each in told) else None
            receipts.append(producer.send_batch(keys, payloads, scopes=some))
            sent += len(payloads)
            size_bytes += sum(map(len, payloads))
        producer.flush()
        for receipt in receipts:
            receipt.result(0)
    seconds = time.perf_counter() - began_s
    sum_up = {"queue": queue, "messages": sent, "bytes": size_bytes, "seconds": round(seconds, 3)}
    answer(sum_up, as_json, lambda: f"{sent:,} messages are in {queue}")
