"""Producers whose buffer takes calls and never answers, as a frozen process does. Without Ray."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.partitioning import Partitioner
from tests.settings import producer_limits, sender_limits


class Silent:
    """Whatever is called of it, nothing ever comes back."""

    def __getattr__(self, name: str) -> Silent:
        return self

    def remote(self, *arguments: Any) -> Silent:
        return self

    def future(self) -> Future[Any]:
        return Future()


@pytest.mark.parametrize("way", ["columns", "one that does not linger", "one that lingers"])
def test_what_nobody_acknowledges_is_given_up_at_its_deadline(way: str) -> None:
    limits = producer_limits(
        linger_ms=5 if way == "one that lingers" else 0,
        sender=sender_limits(append_timeout_ms=300),
    )
    with Producer("t", "q", 1, Partitioner(1), limits, handles={0: Silent()}) as producer:
        time.sleep(0.05)  # the producer's own thread has nothing to do by then, and sleeps
        sent = producer.send_batch([b"k"], [b"x"]) if way == "columns" else producer.send(b"k", b"")
        with pytest.raises(DeadlineExceeded, match="did not acknowledge"):
            sent.result(20)
