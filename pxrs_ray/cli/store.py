"""`pxrs store`: checks, shows and copies registry stores. Needs no Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pxrs_ray.cli._options import AsJson
from pxrs_ray.clock import wall_ms

if TYPE_CHECKING:
    from pxrs_ray.model import Snapshot
    from pxrs_ray.status.rendering import Table, View
    from pxrs_ray.store import RegistryStore

SHOW_DEADLINE_MS = 2_500
CHECK_PREFIX = "/pxrs-check/"
TIMED_CALLS = 50
BATCH = 64
CHANGES_SHOWN = 20

app = typer.Typer(help="Check, show and copy registry stores.", no_args_is_help=True)

Url = Annotated[str, typer.Argument(help="The store: sqlite:///f, etcd://h:2379, ...")]
Prefix = Annotated[str, typer.Option(help="The key prefix of the topologies.")]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", help="Only this group; may be repeated."),
]


@app.command()
def check(
    url: Url,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds of the claim race.")] = 100,
    deadline_ms: Annotated[
        int, typer.Option(min=100, help="The deadline of each call, in milliseconds.")
    ] = 10_000,
    as_json: AsJson = False,
) -> None:
    """Connect, create the schema, run the contract suite in groups of its own, and time commits."""
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.rendering import Table
    from pxrs_ray.testing.store_contract import run_contract

    open_one = _opener(url, deadline_ms)
    with open_one() as store:
        store.create()
        info, times = store.describe(), _commit_times(store)
    results = run_contract(open_one, claim_race_rounds=rounds)
    failed = [result for result in results if not result.passed]
    told: dict[str, Any] = {
        "store": info,
        "passed": len(results) - len(failed),
        "failed": {result.test: result.failure for result in failed},
        "commit_ms": times,
    }
    rows: list[tuple[object, object]] = [
        ("store", info.url),
        ("durable", "yes" if info.durable else "no"),
    ]
    rows += [("warning", warning) for warning in info.warnings]
    rows += [(f"commit, {name}", f"{value:.3f} ms") for name, value in times.items()]
    rows += [("contract", f"{told['passed']} of {len(results)} promises kept")]
    rows += [(f"FAILED {result.test}", result.failure) for result in failed]
    answer(told, as_json, lambda: Table(("what", "finding"), rows))
    if failed:
        raise typer.Exit(1)


@app.command()
def show(
    url: Url, group: Groups = None, prefix: Prefix = "/pxrs/", as_json: AsJson = False
) -> None:
    """Show the groups of a registry; with --group their partitions, members and history."""
    from pxrs_ray.cli._show import answer
    from pxrs_ray.errors import NotFound
    from pxrs_ray.status.rendering import Table
    from pxrs_ray.store import open_store, parse_store_url
    from pxrs_ray.store.reach import check_reach

    found: list[dict[str, Any]] = []
    with open_store(url, prefix=prefix, deadline_ms=SHOW_DEADLINE_MS) as store:
        check_reach(parse_store_url(url))
        info = store.describe()
        for name in group or store.groups():
            snapshot = store.load(name)
            if snapshot is None:
                raise NotFound(f"no group {name!r} in {info.url}; it has {store.groups()}")
            found.append(_told_of(store, snapshot))
    heads = ("group", "generation", "partitions", "owned", "members", "version", "documents")
    rows = [
        (
            one["snapshot"].group,
            one["snapshot"].generation,
            len(one["snapshot"].partitions),
            sum(row.owner is not None for row in one["snapshot"].partitions),
            len(one["snapshot"].members),
            one["snapshot"].last_version,
            ", ".join(one["documents"]) or None,
        )
        for one in found
    ]

    def for_people() -> View:
        from pxrs_ray.status.rendering import View

        shown = [Table(heads, rows, f"registry {info.url}")]
        for one in found if group else ():
            shown += _tables_of(one)
        return View(shown)

    answer({"store": info, "groups": found}, as_json, for_people)


@app.command()
def copy(
    source: Annotated[str, typer.Argument(help="The store to copy from.")],
    target: Annotated[str, typer.Argument(help="The store to copy to.")],
    group: Groups = None,
    prefix: Prefix = "/pxrs/",
    as_json: AsJson = False,
) -> None:
    """Copy a stopped topology's registry to another store, and read it back to verify."""
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.rendering import Table
    from pxrs_ray.store import open_store, parse_store_url
    from pxrs_ray.store.copy import copy_groups
    from pxrs_ray.store.reach import check_reach

    with (
        open_store(source, prefix=prefix, deadline_ms=30_000) as old,
        open_store(target, prefix=prefix, deadline_ms=30_000) as new,
    ):
        for each in (source, target):
            check_reach(parse_store_url(each))
        done = copy_groups(old, new, group)
    heads = ("group", "generation", "partitions", "members", "changes", "documents")
    rows = [(d.group, d.generation, d.partitions, d.members, d.changes, d.documents) for d in done]
    answer(done, as_json, lambda: Table(heads, rows, "copied and verified"))


def _opener(url: str, deadline_ms: int) -> Callable[[], RegistryStore]:
    """What opens one more store on the registry at `url`, apart from the topologies' own."""
    from pxrs_ray.store import open_store, parse_store_url
    from pxrs_ray.store.reach import check_reach

    if parse_store_url(url).scheme == "memory":
        from pxrs_ray.store.memory import MemoryRegistry, MemoryStore

        registry = MemoryRegistry()
        return lambda: MemoryStore(registry)
    open_store(url, prefix=CHECK_PREFIX, deadline_ms=deadline_ms).close()
    check_reach(parse_store_url(url))
    return lambda: open_store(url, prefix=CHECK_PREFIX, deadline_ms=deadline_ms)


def _commit_times(store: RegistryStore) -> dict[str, float]:
    """The middle and the slow end of how long a commit takes, alone and as one of a batch."""
    import time

    from pxrs_ray.model import Write, WriteKind

    group = f"latency-{wall_ms()}"
    led = store.lead(group, BATCH, "check")
    try:
        claims = [
            Write(WriteKind.CLAIM, p, "check", 1, 0, version=led.last_version + 1 + p)
            for p in range(BATCH)
        ]
        store.write(group, led.generation, claims)
        told, offset = {}, 0
        for size in (1, BATCH):
            times = []
            for _ in range(TIMED_CALLS):
                offset += 1
                batch = [
                    Write(WriteKind.COMMIT, p, "check", 1, 1, checkpoint=offset)
                    for p in range(size)
                ]
                began = time.perf_counter()
                store.write(group, led.generation, batch)
                times.append((time.perf_counter() - began) * 1_000)
            times.sort()
            told[f"batch of {size}, p50"] = times[len(times) // 2]
            told[f"batch of {size}, p99"] = times[int(len(times) * 0.99)]
        return told
    finally:
        store.remove_group(group)


def _told_of(store: RegistryStore, snapshot: Snapshot) -> dict[str, Any]:
    group = snapshot.group
    recent = store.changes(group, snapshot.last_version - CHANGES_SHOWN)
    return {
        "snapshot": snapshot,
        "expired": [row.partition for row in store.expired(group)],
        "documents": {name: len(text) for name, text in store.documents(group).items()},
        "recent_changes": recent,
    }


def _tables_of(told: dict[str, Any]) -> list[Table]:
    from pxrs_ray.status.rendering import Table
    from pxrs_ray.status.views import changes_table

    snapshot: Snapshot = told["snapshot"]
    changes = told["recent_changes"]
    partitions = [
        (
            f"P{row.partition}",
            row.owner,
            row.checkpoint,
            row.epoch,
            row.attempts,
            "lease over" if row.partition in told["expired"] else None,
        )
        for row in snapshot.partitions
    ]
    members = [
        (member.member, member.incarnation, member.weight, ", ".join(member.labels) or None)
        for member in snapshot.members
    ]
    return [
        Table(
            ("partition", "owner", "checkpoint", "epoch", "attempts", ""),
            partitions,
            f"{snapshot.group}: partitions",
        ),
        Table(("member", "incarnation", "weight", "labels"), members, "members"),
        changes_table(changes, f"the last {len(changes)} changes"),
    ]
