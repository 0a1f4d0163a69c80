"""`pxrs store`: check, show and copy, from the command line; and the copy itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.cli.root import run
from pxrs_ray.errors import AlreadyExists, NotFound, StoreCorrupted, UsageError
from pxrs_ray.model import (
    Change,
    Member,
    MemberWrite,
    Outcome,
    Record,
    Snapshot,
    Write,
    WriteKind,
)
from pxrs_ray.store import RegistryStore, open_store
from pxrs_ray.store.copy import all_changes, copy_groups
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.testing.store_checks.base import commit
from tests.servers import EtcdServer, PostgresServer, RedisServer

GROUPS = ("orders/replicas", "payments/ä")


def _filled(store: RegistryStore) -> None:
    """Two groups with history, documents and a member that is gone."""
    store.create()
    for number, group in enumerate(GROUPS):
        generation = store.lead(group, 4, "first").generation
        member = Member("A", 1, 2.0, 100, ("gpu",))
        records: list[Record] = [
            MemberWrite("joined", member, 1, 2, "asked to", 1_700_000_000_000),
            Write(WriteKind.CLAIM, 1, "A", 1, 0, version=3, cause="A joined"),
            commit(1, 40 + number, attempts=2, detail="d"),
        ]
        assert store.write(group, generation, records) == [Outcome.APPLIED] * 3
        store.put_document(group, generation, "config/current", "x" * 300_000)


def _told(store: RegistryStore, group: str) -> tuple[Any, ...]:
    return (store.load(group), all_changes(store, group), dict(store.documents(group)))


def _output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = run(list(arguments))
    told = capsys.readouterr()
    assert status == 0, told.err
    return told.out


@pytest.fixture(params=["sqlite", "postgresql", "redis", "etcd"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/target.db"
    name = {"postgresql": "postgres"}.get(request.param, request.param)
    server: PostgresServer | RedisServer | EtcdServer = request.getfixturevalue(f"{name}_server")
    with open_store(server.url) as store:
        store.create()
        for group in GROUPS:
            store.remove_group(group)
    return server.url


def test_a_registry_is_copied_between_backends_and_back(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, back = f"sqlite:///{tmp_path}/source.db", f"sqlite:///{tmp_path}/back.db"
    with open_store(source) as store:
        _filled(store)
        wanted = [_told(store, group) for group in GROUPS]
    copied = json.loads(_output(capsys, "store", "copy", source, target, "--json"))
    assert [one["group"] for one in copied] == list(GROUPS)
    assert copied[0] == {
        "group": GROUPS[0],
        "generation": 1,
        "partitions": 4,
        "members": 1,
        "changes": 3,
        "documents": 1,
    }
    _output(capsys, "store", "copy", target, back, *(f"-g{group}" for group in GROUPS))
    with open_store(back) as store:
        assert [_told(store, group) for group in GROUPS] == wanted
        assert store.lead(GROUPS[0], 4, "next").generation == 2
    with open_store(target) as store:
        for group in GROUPS:
            store.remove_group(group)


def test_a_group_in_use_is_not_copied() -> None:
    with MemoryStore() as source, MemoryStore() as target:
        generation = source.lead("g", 1, "c").generation
        join = MemberWrite("joined", Member("A", 1), 60_000, 2)
        claim = Write(WriteKind.CLAIM, 0, "A", 1, 0, version=3)
        source.write("g", generation, [join, claim])
        with pytest.raises(UsageError, match="'A' owns partition 0 and is alive"):
            copy_groups(source, target)
        assert target.groups() == ()


class _Changing(MemoryStore):
    """Somebody leads the group whenever its documents are read."""

    def documents(self, group: str) -> dict[str, str]:
        self.lead(group, 1, "somebody")
        return dict(super().documents(group))


class _Losing(MemoryStore):
    """Keeps all but the history of what is restored."""

    def restore(self, snapshot: Snapshot, changes: Sequence[Change], documents: Any) -> None:
        super().restore(snapshot, (), documents)


def test_what_goes_wrong_is_noticed() -> None:
    with MemoryStore() as source, MemoryStore() as target:
        source.lead("g", 1, "c")
        with pytest.raises(NotFound, match="no group 'h'"):
            copy_groups(source, target, ["h"])
        with _Losing() as losing, pytest.raises(StoreCorrupted, match="did not come back"):
            copy_groups(source, losing)
        assert losing._registry.groups == {}
        copy_groups(source, target)
        with pytest.raises(AlreadyExists):
            copy_groups(source, target)
    with _Changing() as changing, MemoryStore() as target:
        changing.lead("g", 1, "c")
        with pytest.raises(UsageError, match="changed while it was read"):
            copy_groups(changing, target)


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/r.db"
    with open_store(url) as store:
        _filled(store)
    overview = _output(capsys, "store", "show", url)
    assert all(group in overview for group in GROUPS)
    detail = _output(capsys, "store", "show", url, "--group", GROUPS[0])
    for words in ("P1", "lease over", "A joined", "gpu", "config/current"):
        assert words in detail
    found = json.loads(_output(capsys, "store", "show", url, "-g", GROUPS[0], "--json"))
    (group,) = found["groups"]
    assert group["snapshot"]["partitions"][1]["checkpoint"] == 40
    assert group["documents"] == {"config/current": 300_000}
    assert [change["kind"] for change in group["recent_changes"]] == ["led", "joined", "claim"]


def test_show_of_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/r.db"
    with open_store(url) as store:
        store.create()
    assert run(["store", "show", url, "--group", "nobody"]) == 1
    assert "no group 'nobody'" in capsys.readouterr().err
    assert run(["store", "show", "sqlyte:///x"]) == 1
    assert "did you mean 'sqlite'" in capsys.readouterr().err


def test_check_runs_the_contract_and_times_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("test_the_fencing_example", "test_checkpoints_never_go_down")
    monkeypatch.setattr("pxrs_ray.testing.store_contract.contract_tests", lambda: few)
    url = f"sqlite:///{tmp_path}/r.db"
    told = json.loads(_output(capsys, "store", "check", url, "--rounds", "5", "--json"))
    assert (told["passed"], told["failed"]) == (2, {})
    assert told["store"]["backend"] == "sqlite" and told["store"]["durable"]
    assert set(told["commit_ms"]) == {
        f"batch of {size}, p{part}" for size in (1, 64) for part in (50, 99)
    }
    with open_store(url, prefix="/pxrs-check/") as store:
        assert store.groups() == ()
    assert "2 of 2 promises kept" in _output(capsys, "store", "check", "memory:")
