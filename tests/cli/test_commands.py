"""Every command against a running topology, and against everything that can be missing or down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pxrs_ray.cli.root import run, subcommands
from tests.cli.conftest import Cluster
from tests.servers import RedisServer, free_port

pytestmark = pytest.mark.ray

WAIT_S = 40.0
HANDLERS = """
import time

def handle(message):
    if message.payload == b"poison":
        raise ValueError("poison")
    time.sleep(0.001)
"""
TOPOLOGY = """
name = "desk"
{options}
[queues.orders]
partitions = 4
[groups.billing]
queue = "orders"
handler = "desk_handlers:handle"
consumers = 2
attempts_max = 2
backoff_ms = 10
"""
# What each command is called with, where it needs a topology.
NEEDS_TOPOLOGY: dict[str, list[str]] = {
    "dashboard": ["--port", "0"],
    "down": [],
    "drain": ["billing"],
    "history": ["billing"],
    "lag": [],
    "pause": ["billing"],
    "plan": ["billing", "3"],
    "produce": ["orders", "x"],
    "resume": ["billing"],
    "scale": ["billing", "2"],
    "seek": ["billing", "end"],
    "status": [],
    "tail": ["orders"],
    "top": ["--frames", "1"],
    "why": ["P1"],
}

Pxrs = Callable[..., str]


@pytest.fixture(scope="module")
def inside(cluster: Cluster) -> Iterator[Cluster]:
    """This very process as a user of the cluster: commands run in it, and are fast."""
    import ray

    before = dict(os.environ)
    os.environ.update({k: v for k, v in cluster.variables.items() if k.startswith(("RAY_", "PX"))})
    yield cluster
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def desk(inside: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running topology, brought up from its file; the folder that the file is in."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "desk_handlers.py").write_text(HANDLERS)
    (folder / "desk.toml").write_text(TOPOLOGY.format(options=""))
    inside.pxrs("up", "desk.toml", cwd=folder)
    yield folder
    inside.run("pxrs", "down", "desk", "--now")


@pytest.fixture
def pxrs(desk: Path, capsys: pytest.CaptureFixture[str]) -> Pxrs:
    """Run a command in this process; it must succeed. Answers its stdout."""

    def call(*arguments: str) -> str:
        status = run(arguments)
        shown = capsys.readouterr()
        assert status == 0, shown.out + shown.err
        return shown.out

    return call


def told(pxrs: Pxrs, *arguments: str) -> Any:
    return json.loads(pxrs(*arguments, "--json"))


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come to be"
        time.sleep(0.05)


def test_up_again_changes_nothing_and_a_change_is_shown_first(inside: Cluster, desk: Path) -> None:
    assert "desk is as desk.toml says" in inside.pxrs("up", "desk.toml", cwd=desk)
    (desk / "more.toml").write_text(TOPOLOGY.format(options="linger_ms = 7"))
    shown = inside.pxrs("up", "more.toml", "--dry-run", cwd=desk)
    assert "would linger_ms: 5 -> 7 (live)" in shown
    (desk / "other.toml").write_text(TOPOLOGY.format(options="").replace("= 4", "= 5"))
    ran = inside.run("pxrs", "up", "other.toml", cwd=desk)
    assert ran.returncode == 1 and "queues.orders.partitions: 4 -> 5 (fixed)" in ran.stderr


def test_status_tells_what_runs(pxrs: Pxrs) -> None:
    found = told(pxrs, "status")
    assert found["topology"] == "desk" and found["deployed"]["file"] == "desk.toml"
    assert len(found["deployed"]["sha256"]) == 64
    assert "billing" in pxrs("status") and "P3" in pxrs("status", "billing")
    assert told(pxrs, "status", "billing")["group"] == "billing"


def test_produce_takes_every_source_and_tail_shows_it(
    pxrs: Pxrs, inside: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "m.jsonl").write_text('{"key": "k", "payload": "from jsonl"}\n')
    (tmp_path / "m.csv").write_text("key,payload\nk,from csv\n")
    pq.write_table(pa.table({"key": ["k"], "payload": ["from parquet"]}), tmp_path / "m.parquet")
    assert told(pxrs, "produce", "orders", "one", "two", "-k", "k")["messages"] == 2
    for name in ("m.jsonl", "m.csv", "m.parquet"):
        pxrs("produce", "orders", "--file", str(tmp_path / name))
    piped = inside.run("pxrs", "produce", "orders", "-s", ":", text="k:from stdin\n")
    assert "1 messages are in orders" in piped.stdout
    lines = [json.loads(line) for line in pxrs("tail", "orders", "--json").splitlines()]
    wanted = ["one", "two", "from jsonl", "from csv", "from parquet", "from stdin"]
    assert [line["payload"] for line in lines if line["key"] == "k"] == wanted
    place = f"P{lines[0]['partition']}"
    assert f"{place}@0 " in pxrs("tail", "orders", "-p", place, "--from", "0")


def test_steering(pxrs: Pxrs) -> None:
    assert "paused" in pxrs("pause", "billing")
    pxrs("produce", "orders", *(f"m{n}" for n in range(20)))
    assert told(pxrs, "lag")[0]["lag"] == 20 and "worst" in pxrs("lag", "billing")
    pxrs("resume", "billing")
    until(lambda: told(pxrs, "lag")[0]["lag"] == 0)
    assert len(told(pxrs, "plan", "billing", "4")["moves"]) == 2
    assert len(told(pxrs, "scale", "billing", "3")["consumers"]) == 3
    assert told(pxrs, "seek", "billing", "start") == dict.fromkeys("0123", 0)
    moved = told(pxrs, "seek", "billing", "end", "-p", "P1")
    assert list(moved) == ["1"]
    assert "billing-2" in pxrs("drain", "billing", "billing-2", "--empty")
    assert told(pxrs, "status", "billing")["wanted"] == 2


def test_history_and_why_tell_causes(pxrs: Pxrs) -> None:
    assert "join" in pxrs("history", "billing")
    newest = told(pxrs, "history", "billing", "-n", "3")
    versions = [change["version"] for change in newest]
    assert versions[-1] == told(pxrs, "status", "billing")["version"] and len(versions) == 3
    shown = pxrs("why", "P1")
    assert "P1 of billing is owned by" in shown and "because" in shown
    assert told(pxrs, "why", "p2")["now"]["partition"] == 2


def test_top_and_doctor(pxrs: Pxrs) -> None:
    shown = pxrs("top", "--frames", "2", "--interval", "0.2")
    assert "group billing of orders: ok" in shown and "billing-0" in shown
    findings = told(pxrs, "doctor")
    assert {finding["level"] for finding in findings} <= {"ok", "warning"}
    assert any("node" in finding["subject"] for finding in findings)


def test_a_failing_partition_is_shown_and_the_doctor_says_what_to_do(
    pxrs: Pxrs, capsys: pytest.CaptureFixture[str]
) -> None:
    pxrs("produce", "orders", "poison", "-k", "sick")
    until(lambda: "ValueError" in pxrs("status"))
    assert run(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "stands still" in shown and "pxrs seek billing" in shown.replace("\n", " ")
    sick = next(p for p in told(pxrs, "status", "billing")["partitions"] if p["problem"])
    pxrs("seek", "billing", str(sick["checkpoint"] + 1), "-p", f"P{sick['partition']}")
    until(lambda: "ValueError" not in pxrs("status"))


def test_a_coordinator_in_restart_only_takes_a_moment(pxrs: Pxrs, inside: Cluster) -> None:
    os.kill(told(pxrs, "status")["coordinator_pid"], signal.SIGKILL)
    assert "desk" in inside.pxrs("status")
    os.kill(told(pxrs, "status")["coordinator_pid"], signal.SIGKILL)
    assert "owned by" in pxrs("why", "P0")


def one_line(ran: subprocess.CompletedProcess[str], words: str) -> None:
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert words in ran.stderr and len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith("pxrs: ") and "Traceback" not in ran.stderr + ran.stdout


@pytest.mark.parametrize("command", sorted(NEEDS_TOPOLOGY))
def test_without_such_a_topology(
    command: str, inside: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run([command, *NEEDS_TOPOLOGY[command], "-t", "nothing"])
    shown = capsys.readouterr()
    assert status == 1 and shown.err.startswith("pxrs: no topology 'nothing' runs")
    assert len(shown.err.splitlines()) == 1


def test_no_command_is_forgotten() -> None:
    elsewhere = {"bench", "demo", "doctor", "init", "up"}
    others = {"log", "store", "quarantine", "import", "export"}
    assert set(subcommands()) - elsewhere - others == set(NEEDS_TOPOLOGY)


@pytest.mark.parametrize("command", ["status", "up", "bench", "doctor", "produce"])
def test_without_ray(command: str, inside: Cluster, desk: Path) -> None:
    arguments = {"up": ["desk.toml"], **NEEDS_TOPOLOGY}.get(command, [])
    nowhere = ("--address", f"127.0.0.1:{free_port()}")
    ran = inside.run("pxrs", *nowhere, command, *arguments, cwd=desk)
    if command == "doctor":
        assert ran.returncode == 1 and "no Ray cluster runs at" in ran.stdout
    else:
        one_line(ran, "no Ray cluster runs at")
    if command == "status":
        debug = inside.run("pxrs", "--debug", *nowhere, command)
        assert debug.returncode == 1 and "Traceback" in debug.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = 'x'\n[queues.a]\npartitons = 3\n", "wrong.toml:3"),
        ("name = 'x\n", "is not TOML"),
        ("[groups.g]\nqueue = 'none'\n", "no such queue"),
    ],
)
def test_with_a_wrong_file(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    assert run(["up", str(tmp_path / "wrong.toml")]) == 1
    shown = capsys.readouterr().err
    assert words in shown and shown.startswith("pxrs: ") and "Traceback" not in shown
    assert run(["up", str(tmp_path / "absent.toml")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_a_handler_that_cannot_be_imported(inside: Cluster, tmp_path: Path) -> None:
    text = TOPOLOGY.format(options="").replace('"desk"', '"lost"')
    (tmp_path / "lost.toml").write_text(text.replace("desk_handlers", "no_handlers"))
    ran = inside.run("pxrs", "up", "lost.toml", cwd=tmp_path)
    one_line(ran, "no_handlers")
    inside.run("pxrs", "down", "lost", "--now")


@pytest.mark.service
def test_with_a_store_that_is_down(
    inside: Cluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    options = f'store = "{redis_server.url}"\nstore_deadline_ms = 500\nlease_ttl_seconds = 1'
    text = TOPOLOGY.format(options=options).replace('"desk"', '"down"')
    (tmp_path / "desk_handlers.py").write_text(HANDLERS)
    (tmp_path / "down.toml").write_text(text)
    inside.pxrs("up", "down.toml", cwd=tmp_path)
    redis_server.freeze()
    try:
        until(lambda: "PROBLEM: registry store" in inside.pxrs("status", "-t", "down"))
        for command in ("pause", "scale"):
            ran = inside.run("pxrs", command, *NEEDS_TOPOLOGY[command], "-t", "down")
            one_line(ran, "has not answered for")
        assert inside.run("pxrs", "doctor", "-t", "down").returncode == 1
    finally:
        redis_server.thaw()
        inside.run("pxrs", "down", "down", "--now")


def test_bench_measures_and_leaves_nothing(inside: Cluster) -> None:
    found = json.loads(inside.pxrs("bench", "-n", "20000", "--partitions", "2", "--json"))
    assert found["produce_per_s"] > 0 < found["latency_p50_ms"]
    assert "bench-" not in inside.run("pxrs", "doctor").stdout


def test_init_writes_what_up_takes(inside: Cluster, tmp_path: Path) -> None:
    assert "next: pxrs up shop.toml" in inside.pxrs("init", "shop", cwd=tmp_path)
    ran = inside.run("pxrs", "init", "shop", cwd=tmp_path)
    one_line(ran, "--force")
    told_changes = inside.pxrs("up", "shop.toml", "--dry-run", cwd=tmp_path)
    assert "would start group billing: 2 consumers" in told_changes
