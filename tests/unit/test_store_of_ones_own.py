"""A store that the user wrote is opened by a URL like the others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pxrs_ray.config import PxrsConfig
from pxrs_ray.errors import ConfigError
from pxrs_ray.store import open_store

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "own_store", raising=False)


def test_what_it_was_told_it_tells_the_next_client(examples: None, tmp_path: Path) -> None:
    url = f"python:own_store:open_json?path={tmp_path}/registry.json"
    config = PxrsConfig(name="shop", store=url)
    with open_store(config.store_url) as store:
        store.create()
        assert store.lead("g", 2, "test").generation == 1
    with open_store(config.store_url) as again:
        assert again.lead("g", 2, "test").generation == 2


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("python:not_there:open", "No module named 'not_there'"),
        ("python:own_store:not_there", "not_there"),
        ("python:own_store", "python:module:function"),
        ("python:own_store:open_json", "missing 1 required"),
        ("python:builtins:dict", "no RegistryStore"),
    ],
)
def test_what_cannot_be_opened_is_told(examples: None, url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_store(url)
