"""Sessions: what is refused before anything starts, and what is gone afterwards.

These tests come first: they start sessions of their own, and a process has one at a time.
"""

from __future__ import annotations

import io
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from rich.console import Console

from pxrs_ray.demo.run import main
from pxrs_ray.errors import AlreadyExists, DependencyMissing, UsageError
from pxrs_ray.spark import (
    partition_column,
    read_queue,
    spark_local,
    spark_on_ray,
    write_dataframe,
)
from pxrs_ray.spark.java import check_java
from tests.spark.helpers import QUEUE, RUN_BY, BuffersOnly, check_numbered, eventually, numbered

pytestmark = pytest.mark.spark


def java_that_says(folder: Path, text: str) -> None:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)


def test_without_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(DependencyMissing, match=r"none on the PATH: install Java 17"):
        check_java(on_path=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(DependencyMissing, match="JAVA_HOME"):
        check_java(on_path=False)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "11.0.22"', 11),
    ],
)
def test_java_versions_that_spark_runs_on(
    said: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path, said)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert check_java(on_path=True) == version


@pytest.mark.parametrize("said", ['openjdk version "21.0.2"', 'java version "9"', "no idea"])
def test_java_versions_that_it_does_not_run_on(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path, said)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DependencyMissing, match="install Java 17"):
        check_java(on_path=True)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"executors": 9}, "9 executors of 1 CPUs and 1g do not fit"),
        ({"cores": 99}, "1 executors of 99 CPUs"),
        ({"memory": "9000g"}, "room for 0"),
        ({"memory": "lots"}, "write for example '1g'"),
        ({"executors": 0}, "at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_and_does_not_hang(
    ray_cluster: Any, java: None, wanted: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said), spark_on_ray("too-much", **wanted):
        pytest.fail("it started")
    assert not ray.util.list_named_actors()


def java_processes() -> set[int]:
    """Every Java process of these tests, Ray's included; what a worker starts is not below them."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.name() != "java" or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(RUN_BY) == str(os.getpid()):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_local_session_feeds_and_reads_the_same(
    queue: BuffersOnly, java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole path without RayDP; afterwards a RayDP session starts in the same process."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with spark_local("local", cores=2) as spark:
        df = numbered(spark, 5_000)
        report = write_dataframe(
            df, queue, QUEUE, key="account", payload="number", timestamp="at", feed_id="local"
        )
        assert (report.via, report.rows, report.rows_already) == ("push", 5_000, 0)
        check_numbered(queue, 5_000)
        back = read_queue(spark, queue, QUEUE)
        assert back.count() == 5_000
        assert back.where(back.partition != partition_column("key", 8)).count() == 0
        with pytest.raises(UsageError, match="spark_on_ray"):
            write_dataframe(df, queue, QUEUE, key="account", feed_id="x", via="raydp")
        with pytest.raises(AlreadyExists, match="'local'"), spark_on_ray("second"):
            pytest.fail("it started")
    assert not java_processes()
    assert list((tmp_path / "tmp").iterdir()) == []
    with pytest.raises(UsageError, match="session of this DataFrame has ended"):
        write_dataframe(df, queue, QUEUE, key="account", feed_id="late")


def test_the_demonstration_ends_well_and_leaves_nothing_behind(
    ray_cluster: Any, java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `make demo` shows, in small: with a session on Ray of its own."""
    before, java_before = set(ray.util.list_named_actors()), java_processes()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told = io.StringIO()
    assert main(20_000, Console(file=told, width=100)) == 0
    for text in (
        "killed balances-",
        "a second feed streamed 1,982 more payments in 5 batches",
        "balances equal Spark's own sums: 21,801 payments",
    ):
        assert text in told.getvalue()
    assert re.search(r"checkpoint +end +epoch +taken over", told.getvalue())
    assert set(ray.util.list_named_actors()) == before
    eventually(lambda: java_processes() <= java_before, "every Java process ended")
    assert list(tmp_path.iterdir()) == []
