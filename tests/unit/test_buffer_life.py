"""On which disk a buffer opens logs, and how it is woken."""

from __future__ import annotations

import pytest

from pxrs_ray.errors import BufferAway, LeaseOver
from pxrs_ray.log.buffer_life import BufferLife, Woken


def test_who_belongs_to_a_disk_opens_nothing_on_another() -> None:
    life = BufferLife(2, "/data/t", "d1")
    for here, told in (("", "no disk of PXRS"), ("d2", "disk d2")):
        assert not life.sees_disk(here)
        assert life.problem == (
            f"buffer 2 belongs to disk d1, and /data/t is {told}: it serves nothing"
        )
        with pytest.raises(LeaseOver, match="belongs to disk d1"):
            life.check_open()
    assert life.sees_disk("d1"), "it came later"
    life.opened()
    life.check_open()
    assert life.problem == ""
    assert not life.sees_disk("d1"), "it is open"


def test_who_has_none_belongs_to_the_first_that_it_finds_for_all_its_lives() -> None:
    life = BufferLife(0, "/data/t", "")
    assert life.sees_disk("d1")
    life.opened()
    life.closes()
    life.begins()
    assert (life.disk_id, life.here) == ("d1", "")
    assert not life.sees_disk("d2")


def test_its_coordinator_alone_wakes_one_that_is_closed() -> None:
    life = BufferLife(0, "/data/t", "")
    life.sees_disk("d1")
    life.opened()
    assert life.asked(by_coordinator=False) is Woken.GO_ON
    assert life.closes()
    with pytest.raises(BufferAway, match="end its process"):
        life.closes()
    assert life.asked(by_coordinator=True) is Woken.END_PROCESS, "it is still closing"
    life.is_at_rest()
    assert not life.closes()
    with pytest.raises(LeaseOver, match="has closed its logs"):
        life.asked(by_coordinator=False)
    assert life.asked(by_coordinator=True) is Woken.BEGIN_ANEW
    life.begins()
    assert life.asked(by_coordinator=True) is Woken.GO_ON
    assert not life.is_open
