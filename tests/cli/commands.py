"""Every command that `pxrs` has, as the program itself lists them, with arguments that are right.

A new command is in every test of these by itself, unless it needs an argument of a name that
no other one has: then `VALUES` wants a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
import typer

from pxrs_ray.cli.root import root

# What an argument that must be given is called with, by its name.
VALUES = {
    "buffer": "0",
    "consumer": "billing-0",
    "consumers": "2",
    "file": "desk.toml",
    "folder": ".",
    "group": "billing",
    "letter": "P1@0",
    "part": "coordinator",
    "partition": "P1",
    "queue": "orders",
    "source": "sqlite:///registry.db",
    "target": "sqlite:///other.db",
    "what": "billing",
    "url": "sqlite:///registry.db",
}
# What else makes a command come to an end soon, and of itself.
FURTHER = {
    "accept-loss": ["orders"],
    "plan": ["billing", "2"],
    "bench": ["-n", "1000"],
    "dashboard": ["--port", "0"],
    "consume": ["--limit", "1", "--idle", "1s"],
    "dead-letters drop": ["--all", "--yes"],
    "dead-letters retry": ["--all"],
    "group delete": ["--yes"],
    "produce": ["x"],
    "quarantine retry": ["k", "--wait", "1"],
    "quarantine show": ["k"],
    "quarantine skip": ["k", "--yes"],
    "queue delete": ["--yes"],
    "queue purge": ["--yes"],
    "recover registry": ["--accept-loss"],
    "seek": ["end", "--yes"],
    "store check": ["--rounds", "1", "--deadline-ms", "500"],
    "top": ["--frames", "1"],
}
WITHOUT_TOPOLOGY_YET_RAY = frozenset({"up", "bench", "recover registry"})
# It starts a Ray and a Spark of its own; tests/spark runs it.
OF_ITS_OWN = "demo"


@dataclass(frozen=True)
class Command:
    """One command: its words, the names of what it can and what it must be told, its options.

    `flags` are the options among what it must be told.
    """

    words: tuple[str, ...]
    parameters: frozenset[str]
    required: tuple[str, ...]
    options: frozenset[str]
    flags: Mapping[str, str]

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def asks_a_topology(self) -> bool:
        return "topology" in self.parameters

    @property
    def needs_ray(self) -> bool:
        return self.asks_a_topology or self.name in WITHOUT_TOPOLOGY_YET_RAY

    def line(self, **other: str) -> list[str]:
        """The command line, with `other` values for some of what it needs."""
        values = {**VALUES, **other}
        given = [
            word
            for name in self.required
            for word in ((self.flags[name],) if name in self.flags else ()) + (values[name],)
        ]
        return [*self.words, *given, *FURTHER.get(self.name, [])]


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[Command]:
    if isinstance(command, click.Group) or hasattr(command, "list_commands"):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _walk(command.get_command(context, name), (*words, name))
        return
    names = frozenset(parameter.name for parameter in command.params)
    required = tuple(parameter.name for parameter in command.params if parameter.required)
    options = frozenset(
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("-")
    )
    flags = {
        parameter.name: parameter.opts[0]
        for parameter in command.params
        if parameter.required and parameter.opts[0].startswith("-")
    }
    yield Command(words, names, required, options | {"--help", "-h"}, flags)


EVERY = tuple(_walk(typer.main.get_command(root), ()))
COMMANDS = tuple(command for command in EVERY if command.name != OF_ITS_OWN)
ASKING = tuple(command for command in COMMANDS if command.asks_a_topology)
