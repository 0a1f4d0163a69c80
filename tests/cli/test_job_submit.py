"""A topology by `ray job submit`, on a cluster with token authentication: the README's lines."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Cluster

pytestmark = pytest.mark.ray

HANDLERS = """
from pathlib import Path
import pxrs_ray

def note(message):
    with open(message.key.decode(), "a") as out:
        out.write(f"VERSION {message.payload.decode()} {pxrs_ray.__file__}\\n")
"""
TOPOLOGY = """
name = "mine"
buffers = 1
[queues.orders]
partitions = 4
[groups.notes]
queue = "orders"
handler = "my_handlers:note"
consumers = 1
"""
ATTACH = """
import pxrs_ray
shop = pxrs_ray.attach("mine")
with shop.producer("orders") as producer:
    producer.send({key!r}, "from another job").result(30)
print(shop.status().topology)
"""


def lines_of(path: Path, count: int, wait_s: float = 40) -> list[str]:
    """The lines of a file that handlers write, once there are so many."""
    end_s = time.monotonic() + wait_s
    while True:
        found = path.read_text().splitlines() if path.exists() else []
        if len(found) >= count:
            return found
        assert time.monotonic() < end_s, f"only {found} in {path}"
        time.sleep(0.05)


def wait_until_passed(cluster: Cluster, topology: str, wait_s: float = 30) -> None:
    """Wait until everything was processed and committed."""
    end_s = time.monotonic() + wait_s
    while json.loads(cluster.pxrs("lag", "-t", topology, "--json"))[0]["lag"]:
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    yield
    for topology in ("mine", "payments"):
        cluster.console.run("down", topology, "--now")


def submit(cluster: Cluster, folder: Path, *command: str) -> str:
    ran = cluster.run("ray", "job", "submit", "--working-dir", ".", "--", *command, cwd=folder)
    told = ran.stdout + ran.stderr
    assert ran.returncode == 0 and "succeeded" in told, told
    return told


def test_a_submitted_topology_outlives_its_job_and_serves_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "my_handlers.py").write_text(HANDLERS.replace("VERSION", "one"))
    (tmp_path / "mine.toml").write_text(TOPOLOGY + f"\n# {os.getpid()}\n")
    out = tmp_path / "out.txt"
    told = submit(cluster, tmp_path, "pxrs", "up", "mine.toml")
    assert "start group notes: 1 consumers of queue orders call my_handlers:note" in told

    cluster.pxrs("produce", "-t", "mine", "orders", "hello", "--key", str(out))
    (line,) = lines_of(out, 1)
    # The handler is from the job's folder, PXRS from the installed wheel.
    told, found = line.rsplit(" ", 1)
    assert told == "one hello" and found.startswith(f"{cluster.environment}/lib/")

    # Neither a coordinator that restarts nor a consumer that dies forgets where the code is.
    wait_until_passed(cluster, "mine")
    status = json.loads(cluster.pxrs("status", "-t", "mine", "--json"))
    assert status["deployed"]["file"] == "mine.toml"
    os.kill(status["coordinator_pid"], signal.SIGKILL)
    os.kill(status["groups"][0]["consumers"][0]["pid"], signal.SIGKILL)
    (tmp_path / "attach.py").write_text(ATTACH.format(key=str(out)))
    assert "mine" in submit(cluster, tmp_path, "python", "attach.py")
    assert lines_of(out, 2)[1].startswith("one from another job")

    # The same again changes nothing (the folder is the same but for what we put beside it).
    (tmp_path / "my_handlers.py").write_text(HANDLERS.replace("VERSION", "two"))
    assert "code: " in submit(cluster, tmp_path, "pxrs", "up", "mine.toml")
    cluster.pxrs("produce", "-t", "mine", "orders", "again", "--key", str(out))
    assert lines_of(out, 3)[2].startswith("two again")
    cluster.pxrs("down", "mine")
    assert "mine" not in cluster.console.run("status", "-t", "mine")[1]


def test_a_checkout_runs_as_it_stands(cluster: Cluster) -> None:
    where = 'python -c "import pxrs_ray; print(pxrs_ray.__file__)"'
    told = submit(cluster, ROOT, "bash", "-c", f"pxrs up examples/payments.toml && {where}")
    assert "payments runs" in told
    assert re.search(r"working_dir_files/\S+/pxrs_ray/__init__.py", told), "the checkout runs"
    cluster.pxrs("produce", "-t", "payments", "payments", '{"amount": 3}', "--key", "a")
    wait_until_passed(cluster, "payments")
    status = json.loads(cluster.pxrs("status", "-t", "payments", "--json"))
    assert sum(p["checkpoint"] for p in status["groups"][0]["partitions"]) == 1
    cluster.pxrs("down", "examples/payments.toml", cwd=ROOT)
