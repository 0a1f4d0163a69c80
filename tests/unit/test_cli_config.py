"""`pxrs config check`: what is wrong with a topology file is found without a Ray."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from pxrs_ray.cli.root import run


def test_a_topology_file_is_checked_without_a_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    told = (
        'name = "shop"\n[queues.payments]\npartitions = 4\n'
        '[groups.billing]\nqueue = "payments"\nhandler = "checked_handlers:charge"\n{more}'
    )
    file = tmp_path / "shop.toml"
    file.write_text(told.format(more=""))
    assert run(["config", "check", "shop.toml"]) == 1
    assert "'checked_handlers:charge' cannot be imported" in capsys.readouterr().err
    assert run(["config", "check", "shop.toml", "--no-handlers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queues"] == {"payments": 4}
    (tmp_path / "checked_handlers.py").write_text(
        "class charge:\n"
        "    def __init__(self): raise RuntimeError('a model of 40 GB')\n"
        "    def handle_batch(self, batch): ...\n"
    )
    importlib.invalidate_caches()
    assert run(["config", "check", "shop.toml"]) == 0
    assert "shop.toml is a sound topology: shop" in capsys.readouterr().out
    file.write_text(told.format(more='processing = "by_key"\n'))
    assert run(["config", "check", "shop.toml"]) == 1
    assert "takes batches, and the processing mode of group billing" in capsys.readouterr().err
