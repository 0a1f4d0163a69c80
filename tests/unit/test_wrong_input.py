"""What people mistype, where no cluster is needed to see it: one line each, with a remedy, at once.

What only a running cluster can refuse is in tests/cli/test_wrong_input.py.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pxrs_ray.cli.root import run
from tests.servers import free_port

# Of the processor: other programs share the machine.
SECONDS_MAX = 1.0
ADDRESS_SECONDS_MAX = 3.0

TOPOLOGY = """\
name = "shop"
[queues.payments]
partitions = 4
[groups.billing]
queue = "payments"
handler = "json:loads"
"""


def file(before: str, after: str) -> str:
    assert TOPOLOGY.count(before) == 1
    return TOPOLOGY.replace(before, after)


def more(line: str) -> str:
    return f"{TOPOLOGY}{line}\n"


# A file, and what the line says of it: where, and what to write instead.
FILES = {
    "no toml": ('name = "x\n', "shop.toml: is not TOML", "line 1", "texts stand in quotes"),
    "a bare word": (more("paused = yes"), "is not TOML", "line 7", "texts stand in quotes"),
    "an option twice": (more('queue = "payments"'), "is not TOML", "line 7"),
    "a text": (file("= 4", '= "four"'), "shop.toml:3", "a whole number from 1 to 65536"),
    "a number in quotes": (file("= 4", '= "4"'), "shop.toml:3", "write 4, without quotes"),
    "zero": (file("= 4", "= 0"), "shop.toml:3", "a whole number from 1 to 65536"),
    "too many": (file("= 4", "= 100000"), "shop.toml:3", "from 1 to 65536"),
    "a fraction": (file("= 4", "= 4.5"), "shop.toml:3", "a whole number"),
    "below zero": (more("consumers = -1"), "shop.toml:7", "from 0 to 10000"),
    "a typo": (file("partitions", "partitons"), "shop.toml:3", "did you mean 'partitions'?"),
    "a table's typo": (
        file("[queues.", "[queue."),
        "shop.toml:2: queue: unknown option; did you mean [queues.NAME]?",
    ),
    "another table's typo": (file("[groups.", "[group."), "did you mean [groups.NAME]?"),
    "a queue's option in a group": (
        more('durability = "always"'),
        "shop.toml:7: groups.billing.durability",
        "write it under [queues.NAME]",
    ),
    "a group's option in a queue": (
        file("= 4", "= 4\nconsumers = 2"),
        "shop.toml:4: queues.payments.consumers",
        "write it under [groups.NAME]",
    ),
    "a group's option above": ("consumers = 2\n" + TOPOLOGY, "write it under [groups.NAME]"),
    "the topology's option in a group": (
        more('store = "memory:"'),
        "shop.toml:7",
        "write it above the first [table]",
    ),
    "a group's queue": (
        file('queue = "payments"', 'queue = "paymets"'),
        "shop.toml:5: groups.billing.queue = 'paymets': no such queue; did you mean 'payments'?",
    ),
    "a size": (
        file("= 4", '= 4\npartition_bytes_max = "10GB"'),
        "shop.toml:4",
        "write 10000000000, in bytes",
    ),
    "a size of another kind": (
        file("= 4", '= 4\nsegment_bytes_max = "1.5 MiB"'),
        "write 1572864, in bytes",
    ),
    "a time": (file("= 4", '= 4\nretention_ms = "7d"'), "write 604800000, in milliseconds"),
    "a short time": ('linger_ms = "5s"\n' + TOPOLOGY, "shop.toml:1", "write 5000, in milli"),
    "seconds": ('lease_ttl_seconds = "10s"\n' + TOPOLOGY, "shop.toml:1", "write 10, in seconds"),
    "a size for a time": (
        'linger_ms = "5 MB"\n' + TOPOLOGY,
        "linger_ms = '5 MB': must be a whole number from 0",
    ),
    "a store": ('store = "mysql://h/x"\n' + TOPOLOGY, "unknown store 'mysql'", "postgresql:"),
    "a store's typo": ('store = "sqllite:///x"\n' + TOPOLOGY, "did you mean 'sqlite'"),
    "a path for a store": ('store = "/tmp/x.db"\n' + TOPOLOGY, "shop.toml:1", "'sqlite:///"),
    "a store's option": ('store = "redis://h?dbb=1"\n' + TOPOLOGY, "did you mean 'db'"),
    "a store's port": ('store = "redis://h:99999/0"\n' + TOPOLOGY, "allowed: 1 to 65535"),
    "a name": (file('"shop"', '"my shop"'), "shop.toml:1", "a text like 'payments'"),
    "a queue's name": (file("queues.payments", 'queues."pay ments"'), "shop.toml:2", "letters"),
    "a policy": (more('failure_policy = "ignore"'), "shop.toml:7", "'stop', 'skip', 'dead_letter'"),
    "a mode": (more('processing = "parallel"'), "shop.toml:7", "'ordered', 'by_key', 'packs'"),
    "an old spelling": (more("parallelism = 4"), 'processing = {mode = "by_key", parallelism = 4}'),
    "parallelism": (
        more('processing = {mode = "by_key", parallelism = 5000}'),
        "shop.toml:7",
        "from 1 to 1024",
    ),
    "a handler with a dot": (file("json:loads", "json.loads"), "shop.toml:6", "'shop.handlers:"),
    "no such module": (
        file("json:loads", "no_module:f"),
        "groups.billing.handler",
        "is its package installed",
    ),
    "no such function": (file("json:loads", "json:no_function"), "no attribute 'no_function'"),
    "a handler that is none": (file("json:loads", "json:decoder"), "groups.billing.handler: a h"),
    "settings of a function": (more('settings = {model = "x"}'), "takes no settings", "__init__"),
}
VARIABLES = {
    "PXRS_LINGR_MS": ("5", "did you mean PXRS_LINGER_MS?"),
    "PXRS_LINGER_MS": ("5s", "write 5000"),
    "PXRS_GROUPS__BILLING__CONSUMRS": ("5", "did you mean PXRS_GROUPS__BILLING__CONSUMERS?"),
    "PXRS_QUEUES__PAYMENTS__PARTITIONS": ("x", "a whole number from 1"),
    "PXRS_GROUPS__BILING__CONSUMERS": ("5", "groups.biling.queue: is missing"),
}
COMMANDS = {
    "config check none.toml": ("none.toml: there is no such file", "pxrs init"),
    "config check folder": ("folder: cannot be read: Is a directory",),
    "config chek shop.toml": ("did you mean 'check'?",),
    "up none.toml": ("there is no such file", "pxrs init"),
    "up": ("Missing argument", "pxrs up --help"),
    "down none.toml": ("there is no such file",),
    "stauts": ("did you mean 'status'?",),
    "status --jsn": ("--json",),
    "why payments": ("a partition is written P3 or 3",),
    "tail payments -p Q9": ("a partition is written P3 or 3",),
    "seek billing yesterday": ("start, end, an offset, or a time like 2026-05-01T12:00",),
    "seek billing --by soon": ("a duration is written 90s",),
    "scale billing four": ("'consumers'", "must be a whole number", "pxrs scale --help"),
    "scale billing": ("Missing argument 'consumers'",),
    "plan billing x": ("must be a whole number",),
    "produce": ("Missing argument 'queue'",),
    "produce payments --file none.jsonl": ("none.jsonl", "No such file"),
    "produce payments --file bad.jsonl": ("bad.jsonl:1: is not JSON",),
    "produce payments --file x --format xml": ("lines, jsonl, csv, parquet",),
    "produce payments x -H nocolon": ("a header is written name=value",),
    "produce payments x --timestamp noon": ("a time is written 2026-05-01T12:00",),
    "produce payments x --format jsonl": ("leave it out beside messages",),
    "produce payments x --delay -1": ("delay_s is 0 to 31622400 seconds, not -1.0",),
    "produce payments x --deliver-at soon": ("a time is written 2026-05-01T12:00",),
    "produce payments --file folder": ("folder: cannot be read", "Is a directory"),
    "tail payments --from soon": ("start, an offset, or a time like 2026-05-01T12:00",),
    "tail payments --grep (": ("is no regular expression",),
    "tail payments -n 3 --since 1h": ("one place: --newest, --from or --since",),
    "seek billing": ("seek to one place: start, end, OFFSET, TIME, --by or --shift",),
    "seek billing start --by 1h": ("seek to one place",),
    "seek billing -5": ("no number below 0 is taken here",),
    "scale billing -1": ("no number below 0 is taken here",),
    "-t shop status": ("those of a command are written behind it",),
    "--json status": ("those of a command are written behind it",),
    "dead-letters retry billing 17": ("a letter is named as the list does, P3@17",),
    "dead-letters drop billing P1 --yes": ("a letter is named as the list does, P3@17",),
    "quarantine show billing": ("name one KEY, or --no-key",),
    "quarantine retry billing k --no-key": ("name one KEY, or --no-key",),
    "restart buffer": ("coordinator, buffer/NUMBER or GROUP/CONSUMER, not 'buffer'",),
    "plan billing": ("say GROUP and CONSUMERS, or --drain NODE, or --move BUFFER",),
    "down --now --delete": ("give only one of them",),
    "up folder": ("folder: cannot be read: Is a directory",),
    "init shop --folder shop.toml": ("shop.toml",),
    "recover registry shop.toml": ("delivered again", "say --accept-loss"),
    "up shop.toml --working-dir none": ("--working-dir none: there is no such folder",),
    "up shop.toml --working-dir bad.jsonl": ("there is no such folder",),
    "recover registry folder --accept-loss": ("folder: cannot be read: Is a directory",),
    "log verify folder": ("no log in folder: name a data folder",),
    "init demo --folder /proc/none": ("/proc/none", "is that its place"),
    "init my/shop": ("name = 'my/shop'", "a text like 'payments'"),
    "log ls none": ("'none' does not exist",),
    "dashboard --port 99999": ("must be less than or equal to 65535",),
    "dashboard --port http": ("must be a whole number",),
    "top --interval 0": ("must be greater than or equal to 0.1",),
    "recover registry none.toml": ("none.toml",),
    "export payments": ("Missing argument 'folder'",),
    "import shop.toml": ("Missing argument 'queue'",),
    "store show sqlite:///none.db": ("there is no registry at", "pxrs up FILE"),
    "store show sqlite:///shop.toml": ("file is not a database",),
    "store show mysql://h/x": ("unknown store 'mysql'",),
    "store show nonsense": ("a store URL starts with one of",),
    "store show etcd://h:port": ("a port that is not a number",),
    "store show redis://h:0": ("the port 0, allowed: 1 to 65535",),
    "store show redis://127.0.0.1:1/0": ("nobody listens at redis://127.0.0.1:1/0", "is the ser"),
    "store show postgresql://127.0.0.1:1/x": ("nobody listens at", "is the server running"),
    "store show etcd://127.0.0.1:1,127.0.0.1:2": ("nobody listens at", "is the server running"),
    "store show oracle://127.0.0.1:1/x": ("nobody listens at", "is the server running"),
    "store check redis://127.0.0.1:1/0": ("nobody listens at", "is the server running"),
    "store check sqlite:////none/x.db": ("there is no folder '/none'",),
    "store copy sqlite:///none.db sqlite:///to.db": ("there is no registry at",),
    "store copy redis://127.0.0.1:1/0 memory:": ("nobody listens at",),
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # nobody may be asked
    (tmp_path / "folder").mkdir()
    (tmp_path / "shop.toml").write_text(TOPOLOGY)
    (tmp_path / "bad.jsonl").write_text('{"payload"\n')
    return tmp_path


def line_of(
    arguments: list[str], capsys: pytest.CaptureFixture[str], seconds_max: float = SECONDS_MAX
) -> str:
    """The one line that the command ends with, which must come in time."""
    began_s = time.process_time()
    status = run(arguments)
    took_s = time.process_time() - began_s
    shown = capsys.readouterr()
    assert status in (1, 2) and shown.out == "", (status, shown)
    assert shown.err.startswith("pxrs: ") and len(shown.err.splitlines()) == 1, shown.err
    assert "Traceback" not in shown.err and "unexpected" not in shown.err, shown.err
    assert took_s < seconds_max, took_s
    return shown.err


@pytest.mark.parametrize("name", FILES)
def test_a_file(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, *words = FILES[name]
    (place / "shop.toml").write_text(text)
    told = line_of(["config", "check", "shop.toml"], capsys)
    assert all(word in told for word in words), told


@pytest.mark.parametrize("name", ["a store", "a store's option", "a size", "a group's queue"])
def test_what_up_would_find_after_it_has_joined_is_found_before(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, *words = FILES[name]
    (place / "shop.toml").write_text(text)
    told = line_of(["up", "shop.toml"], capsys)
    assert all(word in told for word in words), told


def test_several_mistakes_are_a_line_each(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = file("partitions = 4", "partitons = 4").replace("queue = ", "queu = ")
    (place / "shop.toml").write_text(text)
    assert run(["config", "check", "shop.toml"]) == 1
    head, *lines = capsys.readouterr().err.splitlines()
    assert head == "pxrs: 3 wrong options:" and len(lines) == 3
    assert all(line.strip().startswith("shop.toml:") for line in lines), lines


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value, words = VARIABLES[name]
    monkeypatch.setenv(name, value)
    told = line_of(["config", "check", "shop.toml"], capsys)
    assert f"pxrs: {name}: " in told and words in told, told


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in place.iterdir()}
    told = line_of(line.split(), capsys)
    assert all(word in told for word in COMMANDS[line]), told
    assert {path.name for path in place.iterdir()} == before, "nothing was made"


def test_a_topology_file_is_checked_where_neither_store_nor_password_is(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for store in ("postgresql://u@db/x?password_env=NOT_HERE", "sqlite:////not/here/x.db"):
        (place / "shop.toml").write_text(f'store = "{store}"\n{TOPOLOGY}')
        assert run(["config", "check", "shop.toml"]) == 0, capsys.readouterr().err


# --- addresses ------------------------------------------------------------------------------------


@pytest.fixture
def proxy() -> Iterator[int]:
    """Answers as a proxy does for a host that is not there: HTTP/2, and status 404 for any call."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    settings = b"\0\0\0\4\0\0\0\0\0"
                    connection.sendall(settings + b"\0\0\1\1\5\0\0\0\1\x8d")
                    connection.settimeout(5)
                    while connection.recv(65_536):
                        pass

        threading.Thread(target=answer, daemon=True).start()
        yield listening.getsockname()[1]


@pytest.fixture
def mute() -> Iterator[int]:
    """Accepts, as the port of a frozen process does, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def at(address: str, capsys: pytest.CaptureFixture[str]) -> str:
    began_s = time.monotonic()
    told = line_of(["--address", address, "status"], capsys, ADDRESS_SECONDS_MAX)
    assert time.monotonic() - began_s < ADDRESS_SECONDS_MAX
    return told


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("foo", "that is HOST:6379, or ray://HOST:10001"),
        ("http://127.0.0.1:8265", "give the head's own with `pxrs --address HOST:6379`"),
        ("https://cluster", "give the head's own with"),
        ("127.0.0.1:99999", "that is HOST:6379"),
        ("127.0.0.1:port", "that is HOST:6379"),
        ("ray://", "that is HOST:6379"),
        ("no-such-host.invalid:6379", "no Ray cluster runs at"),
        ("ray://no-such-host.invalid:10001", "no Ray cluster runs at"),
    ],
)
def test_an_address(address: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in at(address, capsys)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_dead_address(
    scheme: str, proxy: int, mute: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens; a proxy answers for whoever is not there; a process that is frozen."""
    assert "no Ray cluster runs at" in at(f"{scheme}127.0.0.1:{free_port()}", capsys)
    told = at(f"{scheme}127.0.0.1:{proxy}", capsys)
    assert "is not the head of a Ray cluster" in told and "ray start --head" in told
    told = at(f"{scheme}127.0.0.1:{mute}", capsys)
    assert "says nothing for" in told and "does it run?" in told
