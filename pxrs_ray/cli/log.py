"""`pxrs log`: reads partition logs on disk, also of topologies that are gone. Needs no Ray."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pxrs_ray.model import Message

FOLLOW_PAUSE_S = 0.2
DAMAGED = 1

app = typer.Typer(help="Read partition logs on disk, without Ray.", no_args_is_help=True)

Folder = Annotated[
    Path,
    typer.Argument(
        exists=True,
        file_okay=False,
        show_default=False,
        help="A data folder, or the folder of one queue or one partition in it.",
    ),
]
First = Annotated[int, typer.Option("--from", min=0, help="Start at this offset.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Show at most this many.")]


@app.command("ls")
def list_logs(folder: Folder, as_json: AsJson = False) -> None:
    """List the logs in FOLDER: offsets, size, groups, losses, problems."""
    from pxrs_ray.cli._show import answer
    from pxrs_ray.log.inspect import find_logs, summarise
    from pxrs_ray.status.rendering import Table
    from pxrs_ray.status.units import clock_text, size_text

    logs = [summarise(path) for path in find_logs(folder)]
    head = ("queue", "P", "start", "end", "segments", "size", "newest", "groups", "gaps", "problem")
    rows = [
        (
            log.queue,
            log.partition,
            log.start_offset,
            log.end_offset,
            log.segments,
            size_text(log.bytes),
            None if log.last_timestamp_ms is None else clock_text(log.last_timestamp_ms),
            ", ".join(f"{group}@{at}" for group, at in sorted(log.groups.items())),
            ", ".join(f"{first}..{end - 1}" for first, end, _ in log.gaps),
            log.problem,
        )
        for log in logs
    ]
    answer(logs, as_json, lambda: Table(head, rows))


@app.command()
def dump(
    folder: Folder,
    first: First = 0,
    limit: Limit = None,
    frames: Annotated[
        bool, typer.Option("--frames", help="Show frames instead of messages.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the messages (or the frames) of every log in FOLDER, one a line."""
    from pxrs_ray.log.inspect import find_logs

    for path in find_logs(folder):
        if frames:
            _dump_frames(path, first, limit, as_json)
        else:
            for message in _messages(path, first, limit):
                _print(message, as_json)


@app.command()
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Read and check every byte of every log in FOLDER. Exit status 1: something is damaged."""
    from pxrs_ray.cli._show import answer
    from pxrs_ray.log.inspect import find_logs
    from pxrs_ray.log.inspect import verify as verify_log
    from pxrs_ray.status.rendering import Table

    checked = [(path, *verify_log(path)) for path in find_logs(folder)]
    told = [
        {"folder": path, "frames": count, "messages": messages, "damages": damages}
        for path, count, messages, damages in checked
    ]
    rows = [
        (path, count, messages, "; ".join(str(damage.error()) for damage in damages) or "whole")
        for path, count, messages, damages in checked
    ]
    answer(told, as_json, lambda: Table(("log", "frames", "messages", "finding"), rows))
    if any(damages for _, _, _, damages in checked):
        raise typer.Exit(DAMAGED)


@app.command()
def tail(
    folder: Folder,
    newest: Annotated[
        int,
        typer.Option("--newest", "-n", min=0, help="Start with this many of the newest messages."),
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep showing new messages.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the newest messages of every log in FOLDER; with --follow, new messages as they
    arrive."""
    from pxrs_ray.log.inspect import find_logs, summarise

    positions = {path: max(0, summarise(path).end_offset - newest) for path in find_logs(folder)}
    while True:
        for path in positions:
            for message in _messages(path, positions[path], None):
                _print(message, as_json, flush=follow)
                positions[path] = message.offset + 1
        if not follow:
            return
        time.sleep(FOLLOW_PAUSE_S)


def _messages(path: Path, first: int, limit: int | None) -> Iterator[Message]:
    from pxrs_ray.log.inspect import read_log

    left = limit
    for batch in read_log(path, first):
        for message in batch:
            if left is not None:
                if left == 0:
                    return
                left -= 1
            yield message


def _print(message: Message, as_json: bool, *, flush: bool = False) -> None:
    from pxrs_ray.cli._show import say
    from pxrs_ray.cli.tail import json_line, text_line

    say(json_line(message) if as_json else text_line(message), flush=flush)


def _dump_frames(path: Path, first: int, limit: int | None, as_json: bool) -> None:
    import json

    from pxrs_ray.cli._show import plain, say
    from pxrs_ray.log.inspect import frames as frames_of
    from pxrs_ray.log.scan import Damage

    shown = 0
    for found in frames_of(path):
        if isinstance(found, Damage):
            say(json.dumps(plain(found)) if as_json else f"DAMAGED {found.error()}")
            continue
        frame = found[0]
        if frame.base_offset + frame.messages <= first:
            continue
        if shown == limit:
            return
        shown += 1
        say(
            json.dumps(plain(frame))
            if as_json
            else f"{frame.file}@{frame.position} offsets {frame.base_offset}.."
            f"{frame.base_offset + frame.messages - 1}, {frame.bytes} bytes, producer "
            f"{frame.producer_id[:8]} epoch {frame.producer_epoch} sequence {frame.sequence}"
        )
