"""The `pxrs` command.

Rules of this package: one module a subcommand, named for it, holding `app` (a `typer.Typer`: a
group of commands) or `command` (a function: one command). A module is imported only when its
subcommand is used or asked for help, so that `pxrs --help` answers at once and a command loads
Ray only when it needs a cluster. An error that PXRS raises on purpose ends the command with one
line on stderr and status 1.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line, and exit with its status."""
    # Pydantic looks through every installed package for plugins: a tenth of a command's time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from pxrs_ray.cli.root import run

    sys.exit(run(sys.argv[1:]))
