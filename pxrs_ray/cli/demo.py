"""`pxrs demo`: Spark feeds payments, consumers keep balances, one of them is killed."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    payments: Annotated[int, typer.Option("--payments", "-n", min=1_000)] = 400_000,
) -> None:
    """Run a demonstration on this machine: a Spark feed, a crash, a takeover, and matching sums."""
    from pxrs_ray.extras import extra

    with extra("spark", "pxrs demo"):
        from pxrs_ray.demo.run import main
    raise typer.Exit(main(payments))
