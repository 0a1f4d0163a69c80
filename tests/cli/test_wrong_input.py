"""What people mistype, where only the running cluster can tell: one line each, with a remedy, soon.

What needs no cluster is in tests/unit/test_wrong_input.py.
"""

from __future__ import annotations

import shlex
import socket
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Cluster
from tests.cli.console import Console
from tests.cli.desk import TOPOLOGY

pytestmark = pytest.mark.ray

SECONDS_MAX = 1.0
# What another program has of the machine's time counts here.
PATIENCE = 3.0

COMMANDS = {
    "produce ordrs x": ("no queue 'ordrs'", "did you mean 'orders'?"),
    "tail ordrs": ("no queue 'ordrs'", "did you mean 'orders'?"),
    "tail orders -p P9": ("0 to 3, not 9",),
    "consume ordrs -g shell --limit 1": ("no queue 'ordrs'", "did you mean 'orders'?"),
    "queue purge ordrs --yes": ("no queue 'ordrs'", "did you mean 'orders'?"),
    "queue delete ordrs --yes": ("no queue 'ordrs'", "did you mean 'orders'?"),
    "status biling": ("no group 'biling'", "did you mean 'billing'?"),
    "lag biling": ("no group 'biling'", "did you mean 'billing'?"),
    "history biling": ("no group 'biling'", "did you mean 'billing'?"),
    "pause biling": ("no group 'biling'", "did you mean 'billing'?"),
    "resume biling": ("no group 'biling'", "did you mean 'billing'?"),
    "scale biling 3": ("no group 'biling'", "did you mean 'billing'?"),
    "plan biling 3": ("no group 'biling'", "did you mean 'billing'?"),
    "seek biling start --yes": ("no group 'biling'", "did you mean 'billing'?"),
    "drain biling": ("biling", "did you mean 'billing'?"),
    "why P1 -g biling": ("no group 'biling'", "did you mean 'billing'?"),
    "group delete biling --yes": ("no group 'biling'", "did you mean 'billing'?"),
    "dead-letters list biling": ("no group 'biling'", "did you mean 'billing'?"),
    "quarantine list biling": ("no group 'biling'", "did you mean 'billing'?"),
    "status -t dsk": ("no topology 'dsk' runs", "desk"),
    "why P9": ("0 to 3, not 9",),
    "seek billing start -p P9 --yes": ("0 to 3, not 9",),
    "seek billing 99999999 --yes": ("99999999",),
    "scale billing -- -1": ("greater than or equal to 0",),
    "scale billing 100000": ("100000", "10000"),
    "plan billing 100000": ("100000",),
    "drain billing billing-77": ("billing-77", "billing-0"),
    "move 0 no-such-node": ("no-such-node",),
    "move 9 no-such-node": ("9",),
    "drain no-such-thing": ("no-such-thing",),
    "restart nothing": ("nothing", "coordinator"),
    "restart buffer-9": ("9",),
    "accept-loss ordrs": ("no queue 'ordrs'", "did you mean 'orders'?"),
    "accept-loss orders -p P9": ("0 to 3, not 9",),
    "dead-letters drop billing P1@0 --yes": ("dead",),
    "quarantine list billing": ("quarantine",),
    "export ordrs out": ("no queue 'ordrs'", "did you mean 'orders'?"),
    "import . ordrs": ("ordrs",),
    "export orders /dev/null/x": ("/dev/null/x", "is that its place"),
    "tail orders --from 99999999": ("does not go as far as 99999999", "P0 at"),
    "produce orders x --delay 5": ("takes no delayed messages", "delays = true"),
    'produce orders x --producer-id ""': ("1 to 200 characters",),
    "produce orders --file desk.toml --format jsonl": ("desk.toml:2: is not JSON",),
    "produce orders --file desk.toml --format parquet": ("desk.toml: cannot be read",),
    "consume orders -g 'bil ling' --limit 1": ("bil ling", "letters, digits"),
    "stack biling/billing-0": ("did you mean 'billing/billing-0'?",),
    "stack nothing": ("known are billing/billing-0, billing/billing-1",),
    "restart billing/billing-77": ("billing-77", "billing-0"),
    "restart biling/billing-0": ("no group 'biling'", "did you mean 'billing'?"),
    "restart buffer/77": ("there is no buffer 77", "pxrs status"),
    "accept-loss --buffer 77": ("there is no buffer 77",),
    "accept-loss --buffer 0 --yes": ("is at home", "nothing of it is to be given up"),
    "plan --drain nope": ("no living node is called 'nope'",),
    "plan --move 77": ("there is no buffer 77",),
    "plan --move 0 --to nope": ("nodes are called 'nope'",),
    "quarantine skip billing k --yes": ("only 'quarantine' puts messages aside",),
    "dead-letters show billing P1@0": ("only 'dead_letter' sends letters",),
    "dead-letters retry billing --all": ("only 'dead_letter' sends letters",),
    "queue purge orders -p P9 --yes": ("0 to 3, not 9",),
    "why P1 -g nothing": ("no group 'nothing'", "known are billing"),
    "down dsk": ("no topology 'dsk' runs", "desk"),
    "top -t nothing": ("no topology 'nothing' runs",),
    "kill-orphans -t nothing": ("no topology 'nothing' runs",),
}


# What a process takes until it has joined a busy Ray.
PROCESS_S = 3.0


def one_line(told: tuple[int, str, str], took_s: float, words: tuple[str, ...]) -> None:
    status, out, err = told
    assert status in (1, 2) and out == "", told
    assert err.startswith("pxrs: ") and len(err.splitlines()) == 1, err
    assert "Traceback" not in err and "unexpected" not in err, err
    assert all(word in err for word in words), err
    assert took_s < SECONDS_MAX * PATIENCE, took_s


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command(line: str, pxrs: Console) -> None:
    pxrs.shown("status")
    began_s = time.monotonic()
    told = pxrs.run(*shlex.split(line))
    one_line(told, time.monotonic() - began_s, COMMANDS[line])


def test_a_port_that_is_in_use(pxrs: Console) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        began_s = time.monotonic()
        told = pxrs.run("dashboard", "--port", str(port))
        one_line(told, time.monotonic() - began_s, (str(port), "choose another --port"))


FILES = {
    "other partitions": ("partitions = 4", "partitions = 5", "partitions: 4 -> 5 (fixed)"),
    "another queue": ('queue = "orders"', 'queue = "others"', "groups.billing.queue"),
    "a handler that does not import": ("desk_handlers", "desk_handers", "desk_handers"),
    "a handler without a function": (":handle", ":handl", "handl"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_the_running_topology_does_not_take(
    name: str, cluster: Cluster, desk: Path, pxrs: Console
) -> None:
    before, after, words = FILES[name]
    text = TOPOLOGY.format(options="")
    assert before in text
    if name == "another queue":
        text += "[queues.others]\n"
    (desk / "wrong.toml").write_text(text.replace(before, after))
    was = pxrs.told("status", "billing")
    began_s = time.monotonic()
    ran = cluster.run("pxrs", "up", "wrong.toml", cwd=desk)
    took_s = time.monotonic() - began_s
    told = (ran.returncode, "", ran.stderr)
    # The command starts a process, and Ray another one that looks whether it has the handler.
    started = 2 if "handler" in name else 1
    one_line(told, took_s - started * PROCESS_S, (words,))
    now = pxrs.told("status", "billing")
    kept = ("wanted", "partitions")
    assert [now[key] if key == "wanted" else len(now[key]) for key in kept] == [
        was[key] if key == "wanted" else len(was[key]) for key in kept
    ]
    assert {c["member"] for c in now["consumers"]} == {c["member"] for c in was["consumers"]}
