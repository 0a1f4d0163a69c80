"""The demonstration's handler: each payment counts once, however often it is delivered."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.consumer.delivery import DeliveredBatch, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.demo.balances import Balances, kept_balances
from pxrs_ray.errors import Fenced


def delivered(first: int, end: int, epoch: int, partition: int = 3) -> DeliveredBatch:
    """Payment n is n cents, for one of two accounts of the partition."""
    keys = [b"acct-%d-%d" % (partition, n % 2) for n in range(first, end)]
    made = Batch.of(keys, [b"%d" % n for n in range(first, end)], timestamp_ms=0)
    batch = Batch(partition, first, made.flags, made.columns, 0)
    return DeliveredBatch(
        batch, DeliveryContext("q", "g", "m", 1, partition, epoch, topology_id="t")
    )


def test_each_payment_counts_once_however_often_it_is_delivered(tmp_path: Path) -> None:
    first, second = Balances(str(tmp_path)), Balances(str(tmp_path))
    first.handle_batch(delivered(0, 10, epoch=1))
    first.handle_batch(delivered(0, 10, epoch=1))
    # The next owner is given what was not committed, and more; then the first one thaws.
    second.handle_batch(delivered(5, 20, epoch=2))
    with pytest.raises(Fenced):
        first.handle_batch(delivered(10, 20, epoch=1))
    first.handle_batch(delivered(0, 4, epoch=1, partition=4))
    assert kept_balances(tmp_path) == {
        "acct-3-0": (sum(range(0, 20, 2)), 10),
        "acct-3-1": (sum(range(1, 20, 2)), 10),
        "acct-4-0": (2, 2),
        "acct-4-1": (4, 2),
    }
