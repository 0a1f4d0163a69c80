"""Every command against a running topology; test_every_command.py has what can be missing."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Cluster
from tests.cli.console import Console
from tests.cli.desk import TOPOLOGY, until
from tests.servers import free_port

pytestmark = pytest.mark.ray


def test_up_again_changes_nothing_and_a_change_is_shown_first(cluster: Cluster, desk: Path) -> None:
    assert "desk is as desk.toml says" in cluster.pxrs("up", "desk.toml", cwd=desk)
    (desk / "more.toml").write_text(TOPOLOGY.format(options="linger_ms = 7"))
    shown = cluster.pxrs("up", "more.toml", "--dry-run", cwd=desk)
    assert "would linger_ms: 0 -> 7 (for producers that begin)" in shown
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
    assert "1 message is in orders" in piped.stdout
    lines = [json.loads(line) for line in pxrs.shown("tail", "orders", "--json").splitlines()]
    wanted = ["one", "two", "from jsonl", "from csv", "from parquet", "from stdin"]
    assert [line["payload"] for line in lines if line["key"] == "k"] == wanted
    place = f"P{lines[0]['partition']}"
    assert f"{place}@0 " in pxrs.shown("tail", "orders", "-p", place, "--from", "0")


def billing(pxrs: Console) -> Any:
    return pxrs.told("status", "billing")


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
    end = {str(p["partition"]): p["end_offset"] for p in billing(pxrs)["partitions"]}
    planned = pxrs.told("seek", "billing", "start", "--dry-run")
    assert [row["repeats"] for row in planned] == list(end.values())
    assert all(row["offset"] == 0 and row["skips"] == 0 for row in planned)
    assert billing(pxrs)["lag"] == 0, "nothing was moved"
    assert "0 are skipped" in pxrs.shown("seek", "billing", "--shift=-1", "--dry-run")
    status, shown, told = pxrs.run("seek", "billing", "start")
    assert status == 1 and "say --yes" in told and f"{sum(end.values()):,} messages come" in shown
    assert pxrs.told("seek", "billing", "start", "--yes") == dict.fromkeys("0123", 0)
    moved = pxrs.told("seek", "billing", "end", "-p", "P1", "--yes")
    assert moved == {"1": end["1"]}
    until(lambda: billing(pxrs)["lag"] == 0)
    assert pxrs.told("seek", "billing", "--shift=-1", "-y") == {p: n - 1 for p, n in end.items()}
    assert pxrs.told("seek", "billing", "--by", "1h", "-y") == dict.fromkeys("0123", 0)
    status, _, told = pxrs.run("seek", "billing", "end", "--by", "1h")
    assert status == 1 and "seek to one place" in told
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


def test_up_tells_what_was_done_by_hand_and_goes_back_to_the_file(
    pxrs: Console, cluster: Cluster, desk: Path
) -> None:
    pxrs.shown("scale", "billing", "3")
    pxrs.shown("pause", "billing")
    shown = cluster.pxrs("up", "desk.toml", "--dry-run", cwd=desk)
    assert "would groups.billing: 3 consumers, scaled by hand at 20" in shown
    assert "-> 2\n" in shown and "billing is paused, and stays so: `pxrs resume" in shown
    assert pxrs.told("status", "billing")["wanted"] == 3
    assert "scaled by hand" in cluster.pxrs("up", "desk.toml", cwd=desk)
    found = pxrs.told("status", "billing")
    assert found["wanted"] == 2 and found["scaled_ms"] is None and found["paused"]
    pxrs.shown("resume", "billing")
    assert "desk is as desk.toml says" in cluster.pxrs("up", "desk.toml", cwd=desk)


def test_tail_finds_and_what_it_prints_can_be_sent_again(pxrs: Console, tmp_path: Path) -> None:
    old = ("--timestamp", "2001-02-03T04:05")
    pxrs.shown("produce", "orders", "find me", "-k", "grep", "-H", "trace=7", "-H", "b=", *old)
    pxrs.shown("produce", "orders", "find me not", "-k", "other")
    pxrs.shown("produce", "orders", "newer", "-k", "grep")
    [line] = pxrs.shown("tail", "orders", "--grep", "find me$", "--json").splitlines()
    found = json.loads(line)
    assert found["headers"] == [["trace", "7"], ["b", ""]]
    assert found["timestamp_ms"] == datetime(2001, 2, 3, 4, 5).astimezone().timestamp() * 1_000
    assert len(pxrs.shown("tail", "orders", "-k", "grep").splitlines()) == 2
    assert len(pxrs.shown("tail", "orders", "-k", "grep", "--limit", "1").splitlines()) == 1
    assert "find me not" in pxrs.shown("tail", "orders", "--since", "1h")
    assert pxrs.shown("tail", "orders", "--from", "2099-01-01T00:00") == ""
    (tmp_path / "again.jsonl").write_text(line + "\n")
    pxrs.shown("produce", "orders", "--file", str(tmp_path / "again.jsonl"), "-H", "first=1")
    again = pxrs.shown("tail", "orders", "--grep", "find me$", "--json").splitlines()[-1]
    copy = json.loads(again)
    assert copy["headers"] == [["first", "1"], *found["headers"]]
    assert all(copy[name] == found[name] for name in ("key", "payload", "timestamp_ms"))
    for wrong, words in (
        (("--grep", "("), "no regular expression"),
        (("--from", "noon"), "or a time like"),
        (("--since", "soon"), "a duration is written"),
        (("--since", "1h", "-n", "3"), "start at one place"),
    ):
        status, _, told = pxrs.run("tail", "orders", *wrong)
        assert status in (1, 2) and words in " ".join(told.split())


def test_a_member_in_the_shell(pxrs: Console) -> None:
    pxrs.shown("produce", "orders", *(f"c{n}" for n in range(6)))
    first = pxrs.shown("consume", "orders", "-g", "shell", "--limit", "4", "--json").splitlines()
    rest = pxrs.shown("consume", "orders", "-g", "shell", "--idle", "2s", "--json").splitlines()
    lines = [json.loads(line) for line in (*first, *rest)]
    places = [(line["partition"], line["offset"]) for line in lines]
    assert len(first) == 4 and len(set(places)) == len(places), "what was printed is committed"
    assert pxrs.told("lag", "shell")[0]["lag"] == 0
    assert pxrs.shown("consume", "orders", "-g", "shell", "--idle", "1s") == ""
    pxrs.shown("group", "delete", "shell", "--yes")


def test_a_purge_says_what_goes_and_asks(pxrs: Console) -> None:
    pxrs.shown("produce", "orders", "p1", "p2")
    status, shown, told = pxrs.run("queue", "purge", "orders")
    assert status == 1 and "goes for ever" in shown and "say --yes" in told
    assert pxrs.shown("tail", "orders")
    assert "is removed" in pxrs.shown("queue", "purge", "orders", "--yes")
    assert pxrs.shown("tail", "orders") == ""
    until(lambda: billing(pxrs)["lag"] == 0)
    pxrs.shown("produce", "orders", "after")
    until(lambda: billing(pxrs)["lag"] == 0)


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
    assert {finding["severity"] for finding in findings} <= {"ok", "warning"}
    assert any("node" in finding["where"] for finding in findings)


def test_what_is_not_lost_cannot_be_accepted(pxrs: Console) -> None:
    assert pxrs.told("accept-loss", "orders") == {}
    status, _, told = pxrs.run("accept-loss", "orders", "-p", "P1")
    assert status == 1 and "has no recorded loss" in told


def test_a_failing_partition_is_shown_and_the_doctor_says_what_to_do(pxrs: Console) -> None:
    pxrs.shown("produce", "orders", "poison", "-k", "sick")
    until(lambda: "ValueError" in pxrs.shown("status"))
    status, shown, _ = pxrs.run("doctor")
    assert status == 1 and "halted at offset" in shown and "pxrs seek" in shown
    sick = next(p for p in pxrs.told("status", "billing")["partitions"] if p["problem"])
    place = f"P{sick['partition']}"
    pxrs.shown("seek", "billing", str(sick["checkpoint"] + 1), "-p", place, "--yes")
    until(lambda: "ValueError" not in pxrs.shown("status"))


def one_line(ran: subprocess.CompletedProcess[str], words: str) -> None:
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert words in ran.stderr and len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith("pxrs: ") and "Traceback" not in ran.stderr + ran.stdout


def test_a_handler_that_cannot_be_imported(cluster: Cluster, tmp_path: Path) -> None:
    text = TOPOLOGY.format(options="").replace('"desk"', '"lost"')
    (tmp_path / "lost.toml").write_text(text.replace("desk_handlers", "no_handlers"))
    ran = cluster.run("pxrs", "up", "lost.toml", cwd=tmp_path)
    one_line(ran, "no_handlers")
    cluster.console.run("down", "lost", "--now")


def test_up_with_a_store_that_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    options = f'store = "redis://127.0.0.1:{free_port()}/0"\nstore_deadline_ms = 500'
    text = TOPOLOGY.format(options=options).replace('"desk"', '"never"')
    (tmp_path / "never.toml").write_text(text)
    one_line(cluster.run("pxrs", "up", "never.toml", cwd=tmp_path), "redis://127.0.0.1")
    assert "never" not in cluster.console.run("status", "-t", "never")[1]


def test_bench_measures_and_leaves_nothing(cluster: Cluster) -> None:
    found = json.loads(cluster.pxrs("bench", "-n", "20000", "--partitions", "2", "--json"))
    assert found["produce_per_s"] > 0 < found["latency_p50_ms"]
    assert "bench-" not in cluster.console.run("doctor")[1]


def test_init_writes_what_up_takes(cluster: Cluster, tmp_path: Path) -> None:
    assert "next: pxrs up shop.toml" in cluster.pxrs("init", "shop", cwd=tmp_path)
    ran = cluster.run("pxrs", "init", "shop", cwd=tmp_path)
    one_line(ran, "--force")
    told_changes = cluster.pxrs("up", "shop.toml", "--dry-run", cwd=tmp_path)
    assert "would start group billing: 2 consumers" in told_changes
