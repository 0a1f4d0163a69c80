"""`pxrs quarantine`: messages that a group has put aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName
from pxrs_ray.cli._ray import running, steady
from pxrs_ray.cli._removal import Yes, confirm
from pxrs_ray.cli._show import answer, text_of
from pxrs_ray.errors import DeadlineExceeded, UsageError

if TYPE_CHECKING:
    from pxrs_ray.actors.client.group_quarantine import KeysAside

app = typer.Typer(
    help="List the keys that a group has put aside, and re-drive or give up their messages.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

KeyArgument = Annotated[str | None, typer.Argument(help="The key, as text.", show_default=False)]
NoKey = Annotated[bool, typer.Option("--no-key", help="The messages without a key.")]
WaitS = Annotated[
    float, typer.Option("--wait", min=0, help="Wait at most this many seconds for the owner.")
]


def _one(key: str | None, no_key: bool) -> bytes | None:
    if (key is None) != no_key:
        raise UsageError("name one KEY, or --no-key for the messages that have none")
    return None if key is None else key.encode()


@app.command("list")
def list_(group: GroupName, topology: TopologyName = None, as_json: AsJson = False) -> None:
    """List every key that is put aside, the message that blocks it, and how many messages wait."""
    found = running(topology).group(group).quarantine.list()
    answer(list(found), as_json, lambda: _table(found))


@app.command()
def show(
    group: GroupName,
    key: KeyArgument = None,
    no_key: NoKey = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show the waiting messages of one key, in order, with payloads."""
    from pxrs_ray.status.rendering import Table

    wanted = _one(key, no_key)
    entries = running(topology).group(group).quarantine.show(wanted)
    rows = [
        (f"P{m.partition}", e.offset, e.attempts, e.error, text_of(m.payload)[:200])
        for e, m in entries
    ]
    head = ("partition", "offset", "attempts", "error", "payload")
    told = [{"entry": entry, "message": message} for entry, message in entries]
    answer(told, as_json, lambda: Table(head, rows))


@app.command()
def retry(
    group: GroupName,
    key: KeyArgument = None,
    no_key: NoKey = False,
    every: Annotated[bool, typer.Option("--all", help="Every key that is put aside.")] = False,
    wait_s: WaitS = 60.0,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Give the messages of a key to the handler again, in order; then the key flows again."""
    wanted = None if every else _one(key, no_key)
    aside = steady(topology).group(group).quarantine
    left = aside.retry_all(wait_s) if every else aside.retry(wanted, wait_s)
    answer(list(left), as_json, lambda: _table(left) if left else "nothing is put aside any more")
    if any(each.retrying for each in left):
        raise DeadlineExceeded(
            f"not all was re-driven in {wait_s:g} s; the owner goes on with it, and `pxrs "
            f"quarantine list {group}` shows how far it is"
        )


@app.command()
def skip(
    group: GroupName,
    key: KeyArgument = None,
    no_key: NoKey = False,
    every: Annotated[
        bool, typer.Option("--all", help="All waiting messages, not only the first.")
    ] = False,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Give up the message that blocks a key (with --all: all waiting messages of the key)."""
    wanted = _one(key, no_key)
    aside = steady(topology).group(group).quarantine
    if not yes:
        told = "messages without a key" if key is None else f"key {key}"
        what = f"all waiting messages of the {told}" if every else f"the message that blocks {told}"
        confirm(f"Give up {what} in {group}?", "no message was given up: say --yes")
    skipped = aside.skip(wanted, None if every else 1)
    answer({"skipped": skipped}, as_json, lambda: f"{skipped} messages given up")


def _table(found: KeysAside) -> object:
    if not found:
        return "nothing is put aside"
    return found.view()
