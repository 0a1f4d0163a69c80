"""Two topologies in a cluster: `pxrs status` shows each, one page shows both, and ends at once."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cluster
from tests.cli.console import Console
from tests.cli.desk import HANDLERS, TOPOLOGY, until

pytestmark = pytest.mark.ray

SECOND = "second"
# What ends in a second has this long on a machine that others keep busy.
END_WAIT_S = 5.0

# A machine may keep the folders of tests where it empties them, which is warned of.
WELL = {"ok", "1 warning"}
WELL_WAIT_S = 60.0


@pytest.fixture(scope="module")
def both(cluster: Cluster, desk: Path) -> Iterator[Console]:
    """A terminal beside two topologies."""
    (desk / "desk_handlers.py").write_text(HANDLERS)
    text = TOPOLOGY.format(options="").replace('"desk"', f'"{SECOND}"')
    (desk / "second.toml").write_text(text)
    cluster.pxrs("up", "second.toml", cwd=desk)
    console = cluster.open_console(desk)
    yield console
    console.close()
    cluster.console.run("down", SECOND, "--now")


def test_status_shows_each(both: Console) -> None:
    until(lambda: all(each["words"] in WELL for each in both.told("status")))
    told = both.told("status")
    assert [each["topology"] for each in told] == ["desk", SECOND]
    assert all(each["groups"] == 1 and each["lag"] == 0 for each in told)
    shown = both.shown("status")
    assert "desk" in shown and SECOND in shown and "`pxrs status -t NAME`" in shown
    assert "partitions" in both.shown("status", "-t", SECOND)
    status, _, err = both.run("status", "billing")
    assert status == 1 and "choose one of desk, second with -t" in err


@contextmanager
def dashboard(cluster: Cluster, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """`pxrs dashboard` as a process of its own: it, its address, and its token."""
    command = [str(cluster.environment / "bin/pxrs"), "dashboard", "--port", "0", *options]
    server = subprocess.Popen(
        command,
        env=cluster.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, "")
        line = next(line for line in lines if "/?token=" in line)  # Ray may say something before
        address, _, token = line.split()[0].partition("/?token=")
        yield server, address, token
    finally:
        server.kill()
        server.wait(30)
        if server.stdout is not None:
            server.stdout.close()


def until_event(stream: Any, kind: str) -> Any:
    while stream.readline().strip() != f"event: {kind}".encode():
        pass
    return json.loads(stream.readline().removeprefix(b"data: "))


@pytest.mark.parametrize("ends_by", [signal.SIGINT, signal.SIGTERM])
def test_one_page_shows_both_and_ends_though_pages_are_open(
    cluster: Cluster, both: Console, ends_by: signal.Signals
) -> None:
    with dashboard(cluster) as (server, address, token):
        streams = {
            name: urllib.request.urlopen(
                f"{address}/events?token={token}&topology={name}", timeout=60
            )
            for name in ("desk", SECOND)
        }
        for name, stream in streams.items():
            assert until_event(stream, "picture")["topology"] == name
        found: dict[str, str] = {}
        end_s = time.monotonic() + WELL_WAIT_S
        while not (found.keys() == {"desk", SECOND} and WELL.issuperset(found.values())):
            assert time.monotonic() < end_s, found
            told = until_event(streams["desk"], "topologies")
            found = {each["topology"]: each["words"] for each in told}
        with urllib.request.urlopen(f"{address}/healthz", timeout=60) as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{address}/healthz?topology=nowhere", timeout=60)
        began_s = time.monotonic()
        server.send_signal(ends_by)
        assert server.wait(60) == 0
        assert time.monotonic() - began_s < END_WAIT_S
        assert server.stdout is not None and "Traceback" not in server.stdout.read()
        for stream in streams.values():
            with suppress(OSError):
                stream.close()


def test_a_page_of_one_shows_that_one_only(cluster: Cluster, both: Console) -> None:
    with dashboard(cluster, "-t", SECOND) as (_, address, token):
        stream = urllib.request.urlopen(f"{address}/events?token={token}", timeout=60)
        assert [each["topology"] for each in until_event(stream, "topologies")] == [SECOND]
        assert until_event(stream, "picture")["topology"] == SECOND
        stream.close()
