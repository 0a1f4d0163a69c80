"""The options and arguments that several commands share, declared once."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer

TopologyName = Annotated[
    str | None,
    typer.Option(
        "--topology",
        "-t",
        envvar="PXRS_TOPOLOGY",
        help="The topology; needed only where several run.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
GroupName = Annotated[str, typer.Argument(help="The consumer group.", show_default=False)]
MaybeGroup = Annotated[
    str | None, typer.Argument(help="The consumer group; default: all.", show_default=False)
]
QueueName = Annotated[str, typer.Argument(help="The queue.", show_default=False)]
File = Annotated[str, typer.Argument(help="The topology file.", show_default=False)]


def partition_number(text: str) -> int:
    """Read a partition as people write it: 'P3', 'p3' or '3'."""
    if not (found := re.fullmatch(r"[Pp]?(\d{1,5})", text)):
        raise typer.BadParameter(f"a partition is written P3 or 3, not {text!r}")
    return int(found[1])


UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def duration(text: str) -> timedelta:
    """Read a length of time as people write it: 90s, 30m, 2h, 1d; one word."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|min|m|h|d)", text.strip())
    if not found:
        raise typer.BadParameter(f"a duration is written 90s, 30m, 2h or 1d, not {text[:50]!r}")
    try:
        return timedelta(seconds=float(found[1]) * UNITS_S[found[2]])
    except OverflowError:
        raise typer.BadParameter(f"{text[:50]!r} is longer than any clock knows") from None


def moment_ms(text: str) -> int:
    """Read a moment as people write it: 2026-05-01T12:00; here, where no zone is named."""
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1_000)
    except (ValueError, OverflowError, OSError):  # also a year that no clock knows
        raise typer.BadParameter(f"a time is written 2026-05-01T12:00, not {text[:50]!r}") from None


Partition = Annotated[
    int,
    typer.Argument(
        parser=partition_number, metavar="P3", help="The partition.", show_default=False
    ),
]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        parser=partition_number,
        metavar="P3",
        help="Only this partition; may be repeated.",
        show_default=False,
    ),
]
