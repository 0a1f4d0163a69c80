"""The options and arguments that several commands share, declared once."""

from __future__ import annotations

import re
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


Partition = Annotated[
    int,
    typer.Argument(
        parser=partition_number, metavar="P3", help="The partition.", show_default=False
    ),
]
Partitions = Annotated[
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
