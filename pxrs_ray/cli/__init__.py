"""The `pxrs` command.

Rules of this package: one module a subcommand, named for it, holding `app` (a `typer.Typer`: a
group of commands) or `command` (a function: one command). A module is imported only when its
subcommand is used or asked for help, so that `pxrs --help` answers at once and a command loads
Ray only when it needs a cluster. An error that PXRS raises on purpose ends the command with one
line on stderr and status 1.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> None:
    """Run the command line, and exit with its status."""
    # Pydantic looks through every installed package for plugins: a tenth of a command's time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A command makes many objects and ends: looking for cycles is another tenth of it.
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    from pxrs_ray.cli.root import run

    _end(run(sys.argv[1:]))


def _end(status: int) -> NoReturn:
    """Exit; at once where that is all that is left to do.

    Leaving a cluster in good order takes Ray a quarter of a second, and the interpreter as much
    again. A cluster that others run does not need it: it notices that this process is gone.
    """
    ray = sys.modules.get("ray")
    joined = ray is not None and ray.is_initialized() and os.environ.get("RAY_ADDRESS") != "local"
    if joined:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    sys.exit(status)
