"""`pxrs init` writes what it says, and tells what to type next from where handlers are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.cli.root import run
from pxrs_ray.config import PxrsConfig


def test_what_is_typed_next_is_typed_where_handlers_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "demo", "--folder", "my services/demo"]) == 0
    told = capsys.readouterr().out
    assert "next: cd 'my services/demo' && pxrs up demo.toml" in told
    folder = tmp_path / "my services/demo"
    monkeypatch.chdir(folder)
    assert {path.name for path in folder.iterdir()} == {"demo.toml", "handlers.py"}
    assert run(["config", "check", "demo.toml"]) == 0, capsys.readouterr().err


def test_the_operators_files_come_along_and_nothing_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "shop", "--ops"]) == 0
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"shop.toml", "handlers.py", "alerts.yml", "grafana.json", "kuberay.yml"}
    assert PxrsConfig.from_toml(tmp_path / "shop.toml").name == "shop"
    (tmp_path / "alerts.yml").write_text("mine")
    capsys.readouterr()
    assert run(["init", "other", "--ops"]) == 1
    assert "alerts.yml" in capsys.readouterr().err
    assert (tmp_path / "alerts.yml").read_text() == "mine"
    assert not (tmp_path / "other.toml").exists()
