"""A command that changes something asks first whether the registry is there, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.cli import _ray
from pxrs_ray.errors import RegistryAway
from pxrs_ray.status.answers import StoreStatus

THERE = StoreStatus("sqlite", "sqlite:///r.db", True, 1, 1, 0.5)
AWAY = StoreStatus("sqlite", "sqlite:///r.db", True, 1, 1, 0.5, 9.0, "refused", (), 7.0)


class Shop:
    """A topology that can be asked for nothing but its store."""

    def __init__(self, store: StoreStatus) -> None:
        self.store_status = lambda: store

    def status(self) -> Any:
        raise AssertionError("every buffer and consumer would be asked")


@pytest.mark.parametrize("store", [THERE, AWAY], ids=["there", "away"])
def test_only_the_store_is_asked(store: StoreStatus, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(store)
    monkeypatch.setattr(_ray, "running", lambda name: shop)
    if store is THERE:
        assert _ray.steady("shop") is shop  # type: ignore[comparison-overlap]
        return
    with pytest.raises(RegistryAway, match=r"registry away for 7 s: .* nothing was changed"):
        _ray.steady("shop")
