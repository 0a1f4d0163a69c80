"""The root command: finds the subcommands, and turns PXRS errors into one line and a status."""

from __future__ import annotations

import os
import pkgutil
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

import pxrs_ray
from pxrs_ray import cli
from pxrs_ray.cli._examples import epilog_of
from pxrs_ray.cli._show import OUTPUT, say
from pxrs_ray.errors import PxrsError
from pxrs_ray.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
INTERRUPTED = 130
WIDTH_MAX = 100
NOT_COMMANDS = frozenset({"root"})
OF_ALL = frozenset({"--quiet", "--debug"})
_PLAIN = {
    "Input should be a valid integer, unable to parse string as an integer": (
        "must be a whole number"
    ),
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should be": "must be",
}


def subcommands() -> dict[str, str]:
    """Name every subcommand and its module: all of this package's, but helpers (`_name`)."""
    names = (found.name for found in pkgutil.iter_modules(cli.__path__))
    return {
        name.rstrip("_").replace("_", "-"): f"{cli.__name__}.{name}"
        for name in sorted(names)
        if not name.startswith("_") and name not in NOT_COMMANDS
    }


class PlainGroup(TyperGroup):
    """A group of commands whose help lists each with the whole first paragraph of its own help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; an unknown one is told with the nearest that there is."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = nearest(args[0], self.list_commands(ctx))
            hint = f"did you mean {near!r}?" if near else "its help has all"
            ctx.fail(f"there is no command {args[0][:50]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        rows = [
            (name, first_paragraph(self.help_of(ctx, name))) for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def help_of(self, ctx: Any, name: str) -> str:
        """The help text of a command."""
        command = self.get_command(ctx, name)
        return (command.help if command is not None else "") or ""


def first_paragraph(text: str) -> str:
    """It in one line."""
    return " ".join(text.strip().partition("\n\n")[0].split())


class Subcommands(PlainGroup):
    """A group whose commands are the modules of this package, each imported when it is needed."""

    def help_of(self, ctx: Any, name: str) -> str:
        """The help text, without a look at the command's options: that takes ten times as long."""
        module = import_module(subcommands()[name])
        app = getattr(module, "app", None)
        return str(module.command.__doc__ if app is None else app.info.help)

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands without importing them."""
        return list(subcommands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the module of `cmd_name`, and wrap its `app` or `command`; None when absent."""
        module_name = subcommands().get(cmd_name)
        if module_name is None:
            return None
        module = import_module(module_name)
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command()(module.command)
        app._add_completion = False  # the root has it, for all
        app.rich_markup_mode = None
        app.info.cls = PlainGroup
        command = typer.main.get_command(app)
        command.name = cmd_name
        command.epilog = epilog_of(cmd_name)
        for name, inner in getattr(command, "commands", {}).items():
            inner.epilog = epilog_of(f"{cmd_name} {name}")
        return command


root = typer.Typer(
    cls=Subcommands,
    name="pxrs",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Help in plain text: rich alone takes longer to import than all the rest of the help.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH_MAX},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(pxrs_ray.__version__)
        raise typer.Exit


@root.callback()
def pxrs(
    address: str = typer.Option(
        "",
        envvar="RAY_ADDRESS",
        help="The Ray cluster, as host:port; default: the one of this machine.",
        show_default=False,
    ),
    debug: bool = typer.Option(  # noqa: ARG001 - `run` looks for it itself
        False, "--debug", help="Show the traceback of an error."
    ),
    quiet: bool = typer.Option(
        False, "--quiet", "-q", help="Print nothing but errors, and what --json answers."
    ),
    version: bool = typer.Option(  # noqa: ARG001 - its callback does it
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """A partitioned, consumer-group message queue inside a Ray cluster."""
    if address:
        os.environ["RAY_ADDRESS"] = address
    OUTPUT.quiet = quiet


def of_all_first(arguments: Sequence[str]) -> list[str]:
    """The same with the flags in front that belong to every command, wherever they were given."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flags = [word for word in arguments[:end] if word in OF_ALL]
    return [*flags, *(w for w in arguments[:end] if w not in OF_ALL), *arguments[end:]]


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`, and answer its exit status. Never raises.

    0: done. 1: it could not be done, one line on stderr says why. 2: wrong usage.
    """
    debug = "--debug" in arguments
    try:
        status = root(args=of_all_first(arguments), prog_name="pxrs", standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output (head, less) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except typer.Abort:
        say("pxrs: nothing was changed", error=True)
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last line of defence: people get one line
        if debug:
            traceback.print_exc()
        if (status := getattr(error, "exit_code", None)) is not None:
            _tell_usage(error)
            return int(status)
        say(f"pxrs: {_told(error)}", error=True)
        return FAILED
    return status if isinstance(status, int) else 0


def _no_such_option(name: str, path: str) -> str:
    """What is said of an option that a command does not have."""
    if name.lstrip("-").replace(".", "", 1).isdecimal():
        return f"no number below 0 is taken here, and {name} is no option either"
    if path == "pxrs":
        return f"{name} is no option of pxrs itself: those of a command are written behind it"
    return ""


def _tell_usage(error: Any) -> None:
    """Wrong usage, in one line with where the right one stands. No arguments at all: the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        say(context.get_help(), error=True)
        return
    path = context.command_path if context is not None else "pxrs"
    told = ""
    if type(error).__name__ == "NoSuchOption":
        told = _no_such_option(error.option_name, path)
    told = told or " ".join(error.format_message().split()).rstrip(".")
    for dry, plain in _PLAIN.items():
        told = told.replace(dry, plain)
    say(f"pxrs: {told} (`{path} --help` has more)", error=True)


def _told(error: Exception) -> str:
    if isinstance(error, PxrsError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}: is that its place, and may this user use it?"
    lines = str(error).strip().splitlines()
    return (
        f"unexpected {type(error).__name__}: {lines[0] if lines else ''} "
        "(`pxrs --debug ...` shows where)"
    )
