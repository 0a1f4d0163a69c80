"""What disks tell of a topology: where its registry is, and that nobody begins another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import RegistryNotHere, StoreCorrupted, UsageError
from pxrs_ray.files import Files
from pxrs_ray.log.identity import Identity, write_identity
from pxrs_ray.log.queues_file import write_queues
from pxrs_ray.store import open_store
from pxrs_ray.topology.disk_survey import (
    Asked,
    DiskTrace,
    Looked,
    Registry,
    SurveyedNode,
    begins_at,
    check_unknown,
    chosen,
    find_registry,
    look_here,
    set_aside,
)
from pxrs_ray.topology.openings import newest_on_disks
from tests.settings import log_limits

TRACE = DiskTrace(1, Identity("an-id", 7, "c", "d-away", "10.0.0.7"))


def place(number: int, **seen: object) -> SurveyedNode:
    looked = Looked(**{"disk": f"d{number}", **seen})  # type: ignore[arg-type]
    return SurveyedNode(f"n{number}", f"10.0.0.{number}", looked)


def test_looking_tells_what_is_there_and_makes_only_the_id(tmp_path: Path) -> None:
    asked = Asked("shop", str(tmp_path / "data"), f"sqlite:///{tmp_path}/data/shop/registry.db")
    assert look_here(asked).disk == ""
    assert not (tmp_path / "data").exists()
    folder = tmp_path / "data" / "shop" / ".buffers" / "1"
    folder.mkdir(parents=True)
    write_identity(Files(), folder, TRACE.identity)
    write_queues(Files(), folder, [QueueSpec("q", 4, log_limits(), queue_id="abc")])
    assert asked.registry is not None
    with open_store(asked.store_url) as store:
        store.create()
        store.lead("shop", 1, "a test")
        store.lead("shop", 1, "a test")
    found = look_here(Asked(**{**_values(asked), "make": True}))
    assert found.disk
    assert found.registry is not None and found.registry.generation == 2
    assert found.traces == (DiskTrace(1, TRACE.identity, {"q": "abc"}),)
    assert found.problem == ""
    # Others use the disk meanwhile.
    assert replace(look_here(asked), free_bytes=found.free_bytes) == found


def _values(asked: Asked) -> dict[str, object]:
    return {
        "topology": asked.topology,
        "data_dir": asked.data_dir,
        "store_url": asked.store_url,
        "key_prefix": asked.key_prefix,
    }


def test_a_disk_that_cannot_be_used_is_told_and_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = look_here(Asked("shop", str(tmp_path / "file" / "data"), make=True))
    assert found.disk == ""
    assert found.problem


def test_a_registry_that_is_not_there_is_not_made_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    with open_store(f"sqlite:///{path}") as store:
        with pytest.raises(RegistryNotHere):
            store.documents("shop")
        with pytest.raises(RegistryNotHere):
            store.load("shop")
        assert list(tmp_path.iterdir()) == []
        store.create()
        assert store.documents("shop") == {}
    path.unlink()
    # One that was there, and is opened again: a restart makes nothing.
    with open_store(f"sqlite:///{path}") as again, pytest.raises(RegistryNotHere):
        again.lead("shop", 1, "a restart")
    assert not path.exists()


def test_the_registry_is_where_its_file_is() -> None:
    has = place(2, registry=Registry("", 5, 11))
    assert find_registry("shop", [place(1), has, place(3)]) is has
    assert find_registry("shop", [place(1)]) is None
    # Another topology's, in the same file: it is to be begun there.
    new = place(3, registry=Registry("", 0, 12))
    assert find_registry("shop", [new]) is new
    assert find_registry("shop", [new, has]) is has


def test_one_disk_that_several_nodes_show_has_one_registry() -> None:
    shown = [place(n, disk="net", registry=Registry("", 5, 11)) for n in (1, 2)]
    assert find_registry("shop", shown) is shown[0]


def test_of_two_registries_nobody_chooses_by_himself() -> None:
    two = [place(1, registry=Registry("", 9, 11)), place(2, registry=Registry("", 3, 12))]
    with pytest.raises(StoreCorrupted) as raised:
        find_registry("shop", two)
    told = str(raised.value)
    for part in ("10.0.0.1", "generation 9", "10.0.0.2", "generation 3", "pxrs recover registry"):
        assert part in told


def test_somebody_chooses_and_the_others_are_set_aside(tmp_path: Path) -> None:
    one = place(1, registry=Registry("", 9, 11))
    two = place(2, registry=Registry("", 3, 12))
    assert chosen("shop", [one, two], "10.0.0.2") == (two, [one])
    with pytest.raises(UsageError, match=r"host 10\.0\.0\.3 .*10\.0\.0\.1, 10\.0\.0\.2"):
        chosen("shop", [one, two], "10.0.0.3")
    for name in ("registry.db", "registry.db-wal"):
        (tmp_path / name).write_text("kept")
    asked = Asked("shop", str(tmp_path), f"sqlite:///{tmp_path}/registry.db")
    made = set_aside(asked)
    assert [Path(file).read_text() for file in made] == ["kept", "kept"]
    assert not (tmp_path / "registry.db").exists()
    assert set_aside(asked) == []


def test_what_has_a_trace_is_not_begun_and_the_host_is_named() -> None:
    check_unknown("shop", [place(1), place(2)])
    with pytest.raises(RegistryNotHere) as raised:
        check_unknown("shop", [place(1), place(2, traces=(TRACE,))])
    told = str(raised.value)
    assert "the registry of shop lies on host 10.0.0.7 (disk d-away), which is away" in told
    assert "pxrs recover registry FILE --accept-loss" in told
    here = place(7, disk="d-away", traces=(TRACE,))
    with pytest.raises(RegistryNotHere, match="is there no more"):
        check_unknown("shop", [here])


def test_a_registry_begins_on_the_head_where_that_has_a_disk() -> None:
    assert begins_at([place(1), place(2)], "n2") == place(2)
    assert begins_at([place(1), place(2, problem="read-only")], "n2") == place(1)
    assert begins_at([place(3), place(1)], "n9") == place(1)
    assert begins_at([place(1, disk="")], "n1") is None


def test_who_begins_a_lost_registry_again_leads_above_the_latest_that_any_disk_tells_of() -> None:
    later = DiskTrace(2, replace(TRACE.identity, generation=9))
    places = [place(1, traces=(TRACE, later)), place(2), place(3, traces=(TRACE,))]
    assert newest_on_disks(places) == 9
    assert newest_on_disks([place(2)]) == 0
