"""Every command against a running topology, and against everything that can be missing or down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pxrs_ray.cli.root import run, subcommands
from tests.cli.conftest import Cluster
from tests.cli.console import Console
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
buffers = 1
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
    "accept-loss": ["orders"],
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


@pytest.fixture(scope="module")
def desk(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running topology, brought up from its file; the folder that the file is in."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "desk_handlers.py").write_text(HANDLERS)
    (folder / "desk.toml").write_text(TOPOLOGY.format(options=""))
    cluster.pxrs("up", "desk.toml", cwd=folder)
    yield folder
    cluster.run("pxrs", "down", "desk", "--now")


@pytest.fixture(scope="module")
def pxrs(cluster: Cluster, desk: Path) -> Iterator[Console]:
    """A terminal in the cluster, beside the running topology."""
    console = Console(cluster.variables, desk)
    yield console
    console.close()


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come to be"
        time.sleep(0.05)


def test_up_again_changes_nothing_and_a_change_is_shown_first(cluster: Cluster, desk: Path) -> None:
    assert "desk is as desk.toml says" in cluster.pxrs("up", "desk.toml", cwd=desk)
    (desk / "more.toml").write_text(TOPOLOGY.format(options="linger_ms = 7"))
    shown = cluster.pxrs("up", "more.toml", "--dry-run", cwd=desk)
    assert "would linger_ms: 5 -> 7 (live)" in shown
    (desk / "other.toml").write_text(TOPOLOGY.format(options="").replace("= 4", "= 5"))
    ran = cluster.run("pxrs", "up", "other.toml", cwd=desk)
    assert ran.returncode == 1 and "queues.orders.partitions: 4 -> 5 (fixed)" in ran.stderr


def test_status_tells_what_runs(pxrs: Console) -> None:
    found = pxrs.told("status")
    assert found["topology"] == "desk" and found["deployed"]["file"] == "desk.toml"
    assert len(found["deployed"]["sha256"]) == 64
    assert "billing" in pxrs.shown("status") and "P3" in pxrs.shown("status", "billing")
    assert pxrs.told("status", "billing")["group"] == "billing"


def test_produce_takes_every_source_and_tail_shows_it(
    pxrs: Console, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "m.jsonl").write_text('{"key": "k", "payload": "from jsonl"}\n')
    (tmp_path / "m.csv").write_text("key,payload\nk,from csv\n")
    pq.write_table(pa.table({"key": ["k"], "payload": ["from parquet"]}), tmp_path / "m.parquet")
    assert pxrs.told("produce", "orders", "one", "two", "-k", "k")["messages"] == 2
    for name in ("m.jsonl", "m.csv", "m.parquet"):
        pxrs.shown("produce", "orders", "--file", str(tmp_path / name))
    piped = cluster.run("pxrs", "produce", "orders", "-s", ":", text="k:from stdin\n")
    assert "1 messages are in orders" in piped.stdout
    lines = [json.loads(line) for line in pxrs.shown("tail", "orders", "--json").splitlines()]
    wanted = ["one", "two", "from jsonl", "from csv", "from parquet", "from stdin"]
    assert [line["payload"] for line in lines if line["key"] == "k"] == wanted
    place = f"P{lines[0]['partition']}"
    assert f"{place}@0 " in pxrs.shown("tail", "orders", "-p", place, "--from", "0")


def test_steering(pxrs: Console) -> None:
    assert "paused" in pxrs.shown("pause", "billing")

    def behind() -> bool:  # what a consumer had fetched before it heard of the pause is finished
        pxrs.shown("produce", "orders", *(f"m{n}" for n in range(20)))
        return bool(pxrs.told("lag")[0]["lag"])

    until(behind)
    assert "worst" in pxrs.shown("lag", "billing")
    pxrs.shown("resume", "billing")
    until(lambda: pxrs.told("lag")[0]["lag"] == 0)
    assert len(pxrs.told("plan", "billing", "4")["moves"]) == 2
    assert len(pxrs.told("scale", "billing", "3")["consumers"]) == 3
    assert pxrs.told("seek", "billing", "start") == dict.fromkeys("0123", 0)
    moved = pxrs.told("seek", "billing", "end", "-p", "P1")
    assert list(moved) == ["1"]
    assert "billing-2" in pxrs.shown("drain", "billing", "billing-2", "--empty")
    assert pxrs.told("status", "billing")["wanted"] == 2


def test_up_starts_the_consumers_of_a_drained_group_again(
    pxrs: Console, cluster: Cluster, desk: Path
) -> None:
    assert "billing is drained" in pxrs.shown("drain", "billing")
    assert pxrs.told("status", "billing")["wanted"] == 0
    shown = cluster.pxrs("up", "desk.toml", cwd=desk)
    assert "start group billing: 2 consumers" in shown
    assert pxrs.told("status", "billing")["wanted"] == 2


def test_history_and_why_tell_causes(pxrs: Console) -> None:
    assert "join" in pxrs.shown("history", "billing")
    newest = pxrs.told("history", "billing", "-n", "3")
    versions = [change["version"] for change in newest]
    assert versions[-1] == pxrs.told("status", "billing")["version"] and len(versions) == 3
    shown = pxrs.shown("why", "P1")
    assert "P1 of billing is owned by" in shown and "because" in shown
    assert pxrs.told("why", "p2")["now"]["partition"] == 2


def test_top_and_doctor(pxrs: Console) -> None:
    shown = pxrs.shown("top", "--frames", "2", "--interval", "0.2")
    assert "group billing of orders: ok" in shown and "billing-0" in shown
    findings = pxrs.told("doctor")
    assert {finding["level"] for finding in findings} <= {"ok", "warning"}
    assert any("node" in finding["subject"] for finding in findings)


def test_what_is_not_lost_cannot_be_accepted(pxrs: Console) -> None:
    assert pxrs.told("accept-loss", "orders") == {}
    status, _, told = pxrs.run("accept-loss", "orders", "-p", "P1")
    assert status == 1 and "P1 has lost nothing" in told


def test_a_failing_partition_is_shown_and_the_doctor_says_what_to_do(pxrs: Console) -> None:
    pxrs.shown("produce", "orders", "poison", "-k", "sick")
    until(lambda: "ValueError" in pxrs.shown("status"))
    status, shown, _ = pxrs.run("doctor")
    assert status == 1 and "stands still" in shown and "pxrs seek" in shown
    sick = next(p for p in pxrs.told("status", "billing")["partitions"] if p["problem"])
    pxrs.shown("seek", "billing", str(sick["checkpoint"] + 1), "-p", f"P{sick['partition']}")
    until(lambda: "ValueError" not in pxrs.shown("status"))


def test_a_coordinator_in_restart_only_takes_a_moment(pxrs: Console, cluster: Cluster) -> None:
    os.kill(pxrs.told("status")["coordinator_pid"], signal.SIGKILL)
    assert "desk" in cluster.pxrs("status")
    os.kill(pxrs.told("status")["coordinator_pid"], signal.SIGKILL)
    assert "owned by" in pxrs.shown("why", "P0")


def one_line(ran: subprocess.CompletedProcess[str], words: str) -> None:
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert words in ran.stderr and len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith("pxrs: ") and "Traceback" not in ran.stderr + ran.stdout


@pytest.mark.parametrize("command", sorted(NEEDS_TOPOLOGY))
def test_without_such_a_topology(command: str, pxrs: Console) -> None:
    status, _, told = pxrs.run(command, *NEEDS_TOPOLOGY[command], "-t", "nothing")
    assert status == 1 and told.startswith("pxrs: no topology 'nothing' runs")
    assert len(told.splitlines()) == 1


def test_no_command_is_forgotten() -> None:
    elsewhere = {"bench", "demo", "doctor", "init", "up"}
    others = {"log", "store", "quarantine", "import", "export"}
    assert set(subcommands()) - elsewhere - others == set(NEEDS_TOPOLOGY)


@pytest.mark.parametrize("command", ["status", "up", "bench", "doctor", "produce"])
def test_without_ray(command: str, cluster: Cluster, desk: Path) -> None:
    arguments = {"up": ["desk.toml"], **NEEDS_TOPOLOGY}.get(command, [])
    nowhere = ("--address", f"127.0.0.1:{free_port()}")
    ran = cluster.run("pxrs", *nowhere, command, *arguments, cwd=desk)
    if command == "doctor":
        assert ran.returncode == 1 and "no Ray cluster runs at" in ran.stdout
    else:
        one_line(ran, "no Ray cluster runs at")
    if command == "status":
        debug = cluster.run("pxrs", "--debug", *nowhere, command)
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


def test_a_handler_that_cannot_be_imported(cluster: Cluster, tmp_path: Path) -> None:
    text = TOPOLOGY.format(options="").replace('"desk"', '"lost"')
    (tmp_path / "lost.toml").write_text(text.replace("desk_handlers", "no_handlers"))
    ran = cluster.run("pxrs", "up", "lost.toml", cwd=tmp_path)
    one_line(ran, "no_handlers")
    cluster.run("pxrs", "down", "lost", "--now")


@pytest.mark.service
def test_with_a_store_that_is_down(
    cluster: Cluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    options = f'store = "{redis_server.url}"\nstore_deadline_ms = 500\nlease_ttl_seconds = 1'
    text = TOPOLOGY.format(options=options).replace('"desk"', '"down"')
    (tmp_path / "desk_handlers.py").write_text(HANDLERS)
    (tmp_path / "down.toml").write_text(text)
    cluster.pxrs("up", "down.toml", cwd=tmp_path)
    redis_server.freeze()
    try:
        until(lambda: "PROBLEM: registry store" in cluster.pxrs("status", "-t", "down"))
        for command in ("pause", "scale"):
            ran = cluster.run("pxrs", command, *NEEDS_TOPOLOGY[command], "-t", "down")
            one_line(ran, "has not answered for")
        assert cluster.run("pxrs", "doctor", "-t", "down").returncode == 1
    finally:
        redis_server.thaw()
        cluster.run("pxrs", "down", "down", "--now")


def test_up_with_a_store_that_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    options = f'store = "redis://127.0.0.1:{free_port()}/0"\nstore_deadline_ms = 500'
    text = TOPOLOGY.format(options=options).replace('"desk"', '"never"')
    (tmp_path / "never.toml").write_text(text)
    one_line(cluster.run("pxrs", "up", "never.toml", cwd=tmp_path), "redis://127.0.0.1")
    assert "never" not in cluster.run("pxrs", "status", "-t", "never").stdout


def test_bench_measures_and_leaves_nothing(cluster: Cluster) -> None:
    found = json.loads(cluster.pxrs("bench", "-n", "20000", "--partitions", "2", "--json"))
    assert found["produce_per_s"] > 0 < found["latency_p50_ms"]
    assert "bench-" not in cluster.run("pxrs", "doctor").stdout


def test_init_writes_what_up_takes(cluster: Cluster, tmp_path: Path) -> None:
    assert "next: pxrs up shop.toml" in cluster.pxrs("init", "shop", cwd=tmp_path)
    ran = cluster.run("pxrs", "init", "shop", cwd=tmp_path)
    one_line(ran, "--force")
    told_changes = cluster.pxrs("up", "shop.toml", "--dry-run", cwd=tmp_path)
    assert "would start group billing: 2 consumers" in told_changes
