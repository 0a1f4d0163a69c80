"""The fenced sink on Oracle (its stand-in, where there is no real one)."""

from __future__ import annotations

import pytest

from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.errors import Fenced
from tests.contract.oracle_database import Database
from tests.contract.test_sink import message


def test_it_applies_once_fences_and_keeps_gaps(database: Database) -> None:
    connection = database.connect()
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE applied (run VARCHAR2(40), seen NUMBER(19), epoch NUMBER(19))")

    def apply(delivery: Delivery) -> None:
        with delivery.transaction(connection) as block:
            binds = {"seen": delivery.offset, "epoch": delivery.context.epoch}
            block.execute("INSERT INTO applied VALUES ('x', :seen, :epoch)", binds)

    for offset in (4, 2, 4, 0, 2):
        apply(message(offset))
    apply(message(3, epoch=7))
    with pytest.raises(Fenced):
        apply(message(1, epoch=5))
    with pytest.raises(RuntimeError), message(1, epoch=7).transaction(connection) as block:
        block.execute("INSERT INTO applied VALUES ('x', 1, 7)")
        raise RuntimeError("undone")
    apply(message(1, epoch=7))
    cursor.execute("SELECT seen FROM applied ORDER BY seen")
    assert [int(row[0]) for row in cursor.fetchall()] == [0, 1, 2, 3, 4]
    cursor.execute("SELECT epoch, full_pages FROM pxrs_sink_owner")
    assert [(int(epoch), full) for epoch, full in cursor.fetchall()] == [(7, "-")]
    cursor.execute("SELECT page, done FROM pxrs_sink_page")
    assert [(int(page), done) for page, done in cursor.fetchall()] == [(0, "r0-4")]
    connection.rollback()
