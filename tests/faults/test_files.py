"""The net over files, at a part of its steps; `python -m tests.faults.files` takes all of them."""

from __future__ import annotations

import os
from random import Random

import pytest

from pxrs_ray.log.limits import Durability
from tests.faults.faulty_files import KINDS, Fault
from tests.faults.files import BURSTS, Case, QuickAndQuiet, play, sweep

PART = int(os.environ.get("PXRS_FAULTS_EVERY", "83"))


@pytest.mark.parametrize("durability", [Durability.INTERVAL, Durability.ALWAYS])
@pytest.mark.parametrize("kind", KINDS)
def test_no_promise_breaks_whatever_operation_fails(kind: str, durability: Durability) -> None:
    with QuickAndQuiet():
        for burst in BURSTS.get(kind, (1,)):
            found = list(sweep(durability, kind, burst, PART))
            assert sum(1 for fired, _ in found if fired) >= 2
            assert [broken for _, broken in found if broken] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_is_really_put(kind: str) -> None:
    with QuickAndQuiet():
        fired, broken = play(Case(Durability.INTERVAL, Fault(kind, Random(kind).randint(0, 20))))
    assert (fired, broken) == (1, "")
