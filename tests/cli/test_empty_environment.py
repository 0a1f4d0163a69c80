"""A machine on which nothing is set: the commands of README and docs, in the order of the pages.

They run in one shell, in network, process and mount namespaces of their own, with an empty HOME and
no variable but PATH: what a reader is not told is not there. PXRS is installed from its wheel.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, install
from tests.hosts.kernel import require_hosts

pytestmark = pytest.mark.ray

SESSION_S_MAX = 600
# Of a command that finds no Ray, or none that lets it in.
FAILS_S_MAX = 3.0 * 3  # other programs share the machine
BLOCKS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = (ROOT / "README.md", ROOT / "docs/operating.md")
# Done before (the wheel is installed), and what the same shell has done for an earlier page.
BEFORE = ("make ", "pip install ")
# What is run where it belongs.
ELSEWHERE = {
    "pxrs plan --move ": "tests/hosts/test_plan.py",
    "pxrs move ": "tests/hosts/test_drain_command.py",
    "pxrs plan --drain ": "tests/hosts/test_drain_command.py",
    "pxrs drain ": "tests/hosts/test_drain_command.py",
    # Another host: two nodes on one have one folder for what jobs bring.
    "ray start --address=": "tests/hosts/host.py",
    "make simulate ": "tests/simulation/test_simulator.py",
}
# What a reader answers, or ends: who is asked says yes, and Ctrl-C ends what follows.
YES = ("pxrs seek billing 2026-05-01", "pxrs queue purge ", "pxrs down payments --delete")
FORCE = ("pxrs group delete ", "pxrs queue delete ")
FOLLOWS = "pxrs tail payments -f"
CONSUMES = "pxrs consume copies --group shell"  # ours: it ends by Ctrl-C
ENDED = 124
MORE = """
[queues.copies]
partitions = 4
[queues.orders]
partitions = 4
"""
# Between the pages: what the second one speaks of.
BETWEEN = [
    "mkdir payments",
    "cd payments",
    "pxrs init payments",
    f"printf {shlex.quote(MORE)} >> payments.toml",
]
PRODUCED = "seq 12 | pxrs produce payments --key account-7"


@dataclass(frozen=True)
class Ran:
    """One command of the session."""

    line: str
    status: int
    took_s: float
    out: str
    err: str


def lines_of(page: Path) -> list[str]:
    """The commands of a page, as they stand there."""
    lines = "".join(BLOCKS.findall(page.read_text())).splitlines()
    told = [line.partition(" #")[0].strip() for line in lines]
    return [line for line in told if line and not line.startswith(BEFORE)]


def as_typed(line: str) -> str:
    """The line with what a reader does besides typing it."""
    if line.startswith(FORCE):
        return f"{line} --force --yes"
    if line.startswith(YES):
        return f"{line} --yes"
    if line == CONSUMES:
        return f"timeout -s INT 8 {line}"
    return f"timeout 5 {line}" if line == FOLLOWS else line


def session() -> list[str]:
    """All that is typed: first the failures that a newcomer meets, then page after page."""
    readme, operating = (
        [line for line in lines_of(page) if not line.startswith(tuple(ELSEWHERE))] for page in PAGES
    )
    begun = {line for line in readme if line.startswith("ray ")}
    operating = [line for line in operating if line not in begun]
    up = next(line for line in operating if " pxrs up " in line)
    at = operating.index(up) + 1
    recover = next(line for line in operating if line.startswith("pxrs recover"))
    delete = next(line for line in operating if line.endswith("--delete"))
    rest = [line for line in operating[at:] if line not in (recover, delete)]
    copied = 1 + next(n for n, line in enumerate(rest) if line.startswith("pxrs produce copies"))
    return [
        "pxrs status",
        *readme,
        *BETWEEN,
        *operating[:at],
        PRODUCED,
        *rest[:copied],
        CONSUMES,
        *rest[copied:],
        "pxrs down payments",
        recover,
        "pxrs up payments.toml",
        delete,
        "ray stop",
        "pxrs status --json",
    ]


def script(lines: list[str], told: Path) -> str:
    """One shell, in which `export` holds for what follows; each line's end is kept in a file."""
    found = ["ip link set lo up", f"mount --bind {told}/ray /tmp/ray", f"cd {told}/work"]
    for number, line in enumerate(lines):
        at = f"{told}/{number}"
        found += [
            f"began=$(date +%s.%N); {as_typed(line)} > {at}.out 2> {at}.err < /dev/null; status=$?"
            if "|" not in line and ">>" not in line
            else f"began=$(date +%s.%N); {as_typed(line)} 2> {at}.err; status=$?; : > {at}.out",
            f'echo "$status $began $(date +%s.%N)" > {at}.status',
        ]
    return "\n".join(found) + "\n"


@pytest.fixture(scope="module")
def ran() -> Iterator[list[Ran]]:
    """The session, from an empty folder to its end."""
    require_hosts()
    # Not below /tmp/ray, which is the session's own.
    folder = Path(tempfile.mkdtemp(prefix="pxrs-e-"))
    try:
        environment, told = install(folder), folder / "told"
        for name in ("home", "work", "ray"):
            (told / name).mkdir(parents=True)
        Path("/tmp/ray").mkdir(exist_ok=True)  # what is hidden must be there
        lines = session()
        (told / "session").write_text(script(lines, told))
        variables = [f"PATH={environment}/bin:/usr/bin:/bin:/usr/sbin:/sbin", f"HOME={told}/home"]
        unshare = ["unshare", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
        subprocess.run(
            [*unshare, "env", "-i", *variables, "bash", str(told / "session")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SESSION_S_MAX,
        )
        yield [_ran(told, number, line) for number, line in enumerate(lines)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ran(told: Path, number: int, line: str) -> Ran:
    status, began, ended = (told / f"{number}.status").read_text().split()
    out, err = ((told / f"{number}.{of}").read_text() for of in ("out", "err"))
    return Ran(line, int(status), float(ended) - float(began), out, err)


def test_every_command_of_the_pages_is_run_here_or_where_it_belongs() -> None:
    typed = session()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for line in lines_of(page):
            elsewhere = [test for begin, test in ELSEWHERE.items() if line.startswith(begin)]
            assert line in typed or elsewhere, f"{page.name}: nobody runs `{line}`"
            assert all((ROOT / test).exists() for test in elsewhere)


def test_each_does_what_the_page_says_with_nothing_set(ran: list[Ran]) -> None:
    for one in ran[1:-1]:
        wanted = ENDED if one.line in (FOLLOWS, CONSUMES) else 0
        assert one.status == wanted, f"{one.line}\n{one.out[-2_000:]}\n{one.err[-2_000:]}"
        assert "Traceback" not in one.out + one.err, one
        if one.line.startswith("pxrs "):
            # Ray itself says on stderr that this network leads nowhere.
            said = [text for text in one.err.splitlines() if "network_util.cc" not in text]
            assert not said, (one.line, said)


def test_where_no_ray_runs_one_line_says_so_soon(ran: list[Ran]) -> None:
    for one in (ran[0], ran[-1]):
        assert one.status == 1 and one.out == "", one
        assert one.err.startswith("pxrs: ") and len(one.err.splitlines()) == 1, one
        assert "ray start --head" in one.err and one.took_s < FAILS_S_MAX, one


def test_what_was_sent_was_seen(ran: list[Ran]) -> None:
    tail = next(one for one in ran if one.line == "pxrs tail payments")
    assert "account-7" in tail.out and '{"amount": 3}' in tail.out
    copied = next(one for one in ran if one.line.startswith("pxrs produce copies"))
    assert "messages are in copies" in copied.out
    consumed = next(one for one in ran if one.line.startswith("pxrs consume payments"))
    assert len(consumed.out.splitlines()) == 10, consumed
    looked = next(one for one in ran if one.line.startswith("pxrs tail payments --since"))
    assert all(json.loads(line)["key"] == "account-7" for line in looked.out.splitlines())
