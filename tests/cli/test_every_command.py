"""Every command against what can be missing: one clear line, the right status, no traceback."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pxrs_ray.cli.root import run
from tests.cli.commands import ASKING, COMMANDS, VALUES, Command
from tests.cli.conftest import Cluster
from tests.cli.console import Console
from tests.cli.desk import HANDLERS, TOPOLOGY, until
from tests.servers import RedisServer, free_port

USAGE = 2
# It does not end by itself where there is a topology; its own test is test_live_page.
FOR_EVER = frozenset({"dashboard"})
# It proves every promise of a store; tests/contract runs it.
LONG = frozenset({"store check"})
# They go on where they can: the answer is complete, and says what is wrong.
REPORTS = frozenset({"doctor"})
every = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
soon = pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if command.name not in LONG],
    ids=lambda command: command.name,
)
# `down` comes last, for there is no topology afterwards.
ONE_BY_ONE = sorted(
    (command for command in ASKING if command.name not in FOR_EVER),
    key=lambda command: command.name == "down",
)
asking = pytest.mark.parametrize("command", ASKING, ids=lambda command: command.name)
Told = tuple[int, str, str]


def one_line(told: Told, words: str = "") -> None:
    status, out, err = told
    assert status == 1 and err.startswith("pxrs: ") and words in err, out + err
    assert len(err.splitlines()) == 1 and "Traceback" not in out + err, out + err


def test_what_each_command_needs_is_known() -> None:
    unknown = {name for command in COMMANDS for name in command.required} - VALUES.keys()
    assert not unknown, "tests.cli.commands.VALUES wants a line for each"
    assert len(COMMANDS) > 25 and {"status", "quarantine list"} <= {c.name for c in COMMANDS}


def test_programs_can_read_every_answer() -> None:
    for_people = {c.name for c in COMMANDS if "as_json" not in c.parameters}
    assert for_people == {"dashboard", "top"}


def test_whoever_is_asked_can_say_yes_before() -> None:
    """What cannot be undone asks; what stops work, or begins what may not end well, too."""
    asking = {c.name for c in COMMANDS if "yes" in c.parameters}
    undone = {"dead-letters drop", "group delete", "quarantine skip", "queue delete", "queue purge"}
    assert asking == undone | {"accept-loss", "down", "drain", "move", "seek"}
    assert all({"--yes", "-y"} <= c.options for c in COMMANDS if c.name in asking)


@pytest.mark.parametrize("flag", ["--quiet", "-q"])
@soon
def test_quiet_is_everywhere(
    command: Command,
    flag: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a Ray: what fails is told in one line, and nothing else is said."""
    if flag in command.options:
        pytest.skip("a command's own")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    (tmp_path / "desk.toml").write_text(TOPOLOGY.format(options=""))
    status = run([*command.line(), flag] if flag == "--quiet" else [flag, *command.line()])
    shown = capsys.readouterr()
    assert shown.out == "", shown.out
    if command.name not in REPORTS:
        assert bool(status) == bool(shown.err), shown.err


# What can be asked about on the desk, and is there.
REMOVES = {
    "group delete billing --force": "group billing was not removed: say --yes",
    "queue delete orders --force": "queue orders was not removed: say --yes",
    "queue purge orders": "queue orders was not",
    "seek billing start": "no checkpoint of billing was moved: say --yes",
    "dead-letters drop billing --key k": "no letter was dropped: say --yes",
    "quarantine skip billing k": "no message was given up: say --yes",
    "down desk --delete": "topology desk was not removed: say --yes",
}


@pytest.mark.ray
@pytest.mark.parametrize("line", REMOVES)
def test_who_removes_asks_and_where_nobody_answers_nothing_is_removed(
    line: str, pxrs: Console
) -> None:
    status, _, err = pxrs.run(*line.split())
    assert status == 1 and REMOVES[line] in err, err
    now = pxrs.told("status")
    assert [q["queue"] for q in now["queues"]] == ["orders"]
    assert [g["group"] for g in now["groups"]] == ["billing"]


@soon
def test_without_ray(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    (tmp_path / "desk.toml").write_text(TOPOLOGY.format(options=""))
    status = run(command.line())
    told = (status, *capsys.readouterr())
    if command.name in REPORTS:
        assert status == 1 and "no Ray cluster runs at" in told[1]
    elif command.needs_ray:
        one_line(told, "no Ray cluster runs at")
        run(["--debug", *command.line()])
        assert "Traceback" in capsys.readouterr().err
    else:
        assert "Ray" not in told[2]
        if status:  # there is no log, and no registry
            one_line(told)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = 'x'\n[queues.a]\npartitons = 3\n", "wrong.toml:3"),
        ("name = 'x\n", "is not TOML"),
        ("[groups.g]\nqueue = 'none'\n", "no such queue"),
        (None, "there is no such file"),
    ],
)
@pytest.mark.parametrize("command", ["up", "down"])
def test_with_a_wrong_topology_file(
    command: str, text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "wrong.toml").write_text(text)
    status = run([command, str(tmp_path / "wrong.toml")])
    one_line((status, *capsys.readouterr()), words)


@pytest.mark.ray
@every
def test_with_a_wrong_path(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], pxrs: Console
) -> None:
    """A file or folder that is not there, or is something else."""
    wrong = tmp_path / "wrong"
    wrong.write_text("neither a topology, nor a log, nor a registry")
    for name in ("file", "folder", "url", "source"):
        if name not in command.required:
            continue
        value = f"sqlite:///{wrong}" if name in ("url", "source") else str(wrong)
        line = command.line(**{name: value})
        if command.asks_a_topology:
            told = pxrs.run(*line)
        else:
            status = run(line)
            told = (status, *capsys.readouterr())
        if told[0] == USAGE:
            assert "Traceback" not in told[2] and str(wrong.name) in told[2]
        else:
            one_line(told)


@pytest.mark.ray
@asking
def test_without_such_a_topology(command: Command, pxrs: Console) -> None:
    told = pxrs.run(*command.line(), "-t", "nothing")
    if command.name in REPORTS:
        assert told[0] == 1 and "no topology 'nothing' runs" in " ".join(told[1].split())
    else:
        one_line(told, "pxrs: no topology 'nothing' runs")


@pytest.mark.ray
def test_while_the_coordinator_restarts(pxrs: Console) -> None:
    """It only takes a moment: everybody gets the answer that they get anyway."""
    for command in ONE_BY_ONE:
        os.kill(pxrs.told("status")["coordinator_pid"], signal.SIGKILL)
        told = pxrs.run(*command.line())
        if told[0] != 0:
            assert told == pxrs.run(*command.line()), command.name


@pytest.fixture
def store_is_down(
    cluster: Cluster, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Callable[..., Told]]:
    """A terminal beside a topology whose registry store does not answer any more."""
    options = f'store = "{redis_server.url}"\nstore_deadline_ms = 500\nlease_ttl_seconds = 1'
    text = TOPOLOGY.format(options=options).replace('"desk"', '"down"')
    (tmp_path / "desk_handlers.py").write_text(HANDLERS)
    (tmp_path / "desk.toml").write_text(text)
    cluster.pxrs("up", "desk.toml", cwd=tmp_path)
    console = cluster.open_console(tmp_path)
    redis_server.freeze()
    try:
        until(lambda: "registry away" in console.shown("status", "-t", "down"))
        yield console.run
    finally:
        redis_server.thaw()
        console.close()
        cluster.console.run("down", "down", "--now")


@pytest.mark.ray
@pytest.mark.service
def test_with_a_store_that_is_down(store_is_down: Callable[..., Told]) -> None:
    """Who asks is answered; who would change something is told at once that nothing was changed."""
    for command in ONE_BY_ONE:
        told = store_is_down(*command.line(), "-t", "down")
        if command.name in REPORTS:
            assert told[0] == 1
            text = " ".join(told[1].split())
            assert "registry of down" in text and "bring redis" in text, text[500:]
        elif told[0] != 0:
            one_line(told)
        if command.name in ("pause", "scale", "seek", "drain", "down"):
            one_line(told)
            assert "registry away for" in told[2] or "has not answered for" in told[2], told[2]
