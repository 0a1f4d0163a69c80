"""Asks before something is removed for ever."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.errors import UsageError

if TYPE_CHECKING:
    from pxrs_ray.topology.removal import Removal

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Force = Annotated[bool, typer.Option("--force", help="Remove it even while it is in use.")]


def confirm(question: str, refused: str) -> None:
    """Ask, and end the command at a no. Raises UsageError(refused) where nobody can answer."""
    if not sys.stdin.isatty():
        raise UsageError(refused)
    typer.confirm(question, abort=True, err=True)


def remove(
    removal: Removal, carry_out: Callable[[], object], *, yes: bool, force: bool, as_json: bool
) -> None:
    """Print what is removed, ask, and remove it. Raises UsageError where something prevents it."""
    from pxrs_ray.cli._show import print_json, say

    removal.check(force=force)
    if not as_json:
        for line in removal.goes:
            say(f"goes for ever: {line}")
        for line in removal.uses:
            say(f"in use: {line}")
        for line in removal.stays:
            say(f"stays: {line}")
    if not yes:
        named = f"{removal.what} {removal.name}"
        confirm(f"Remove {named}?", f"{named} was not removed: say --yes")
    carry_out()
    if as_json:
        print_json({"removed": removal})
    else:
        say(f"{removal.what} {removal.name} is removed")
