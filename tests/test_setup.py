"""`.ci/setup` on machines that lack something: what it asks apt for, and what it tells.

The tools it calls are stand-ins in a folder that is all of its PATH; nothing is installed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("bash", "cat", "chmod", "dirname", "ls", "mkdir", "rm", "sha256sum", "touch")
SERVERS = ("java", "etcd", "postgres", "redis-server")
JARS = ("hsqldb.jar", "h2.jar")
CHECKERS = ("chromium", "chromedriver", "promtool", "ip")
PROVIDES = {
    "openjdk-17-jre-headless": "java",
    "etcd-server": "etcd",
    "postgresql": "postgres",
    "redis-server": "redis-server",
    "libhsqldb-java": "hsqldb.jar",
    "iproute2": "ip",
    "rabbitmq-server": "rabbitmq-server",
    "nats-server": "nats-server",
}


class Machine:
    """A checkout whose .venv is up to date, and a PATH with only what we put there."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.checkout / ".ci").mkdir(parents=True)
        shutil.copy(ROOT / ".ci/setup", self.checkout / ".ci/setup")
        # Some things are looked for where Debian keeps them: here only what we put there is.
        script = (self.checkout / ".ci/setup").read_text()
        for kept in ("/usr/lib/postgresql", "/usr/share/java"):
            script = script.replace(kept, str(self.bin))
        (self.checkout / ".ci/setup").write_text(script)
        (self.checkout / ".venv").mkdir()
        names = ("pyproject.toml", "constraints.txt")
        for name in names:
            shutil.copy(ROOT / name, self.checkout / name)
        stamp = subprocess.check_output(["sha256sum", *names], cwd=self.checkout)
        (self.checkout / ".venv/.installed").write_bytes(stamp)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found
            (self.bin / tool).symlink_to(found)
        for name in (*JARS, *CHECKERS):
            self.tool(name)
        self.tool("id", "echo 1000")

    def tool(self, name: str, body: str = "exit 0") -> None:
        path = self.bin / name
        path.write_text(f"#!{self.bin}/bash\n{body}\n")
        path.chmod(0o755)

    def with_apt(self, known: str = "*") -> Path:
        """Be root on Debian: apt-get notes what it is asked for, and 'installs' it."""
        log = self.checkout / "apt.log"
        cases = "".join(
            f'    {package}) echo "#!/bin/sh" >{self.bin}/{tool}; chmod +x {self.bin}/{tool};;\n'
            for package, tool in PROVIDES.items()
        )
        self.tool("id", "echo 0")
        self.tool("apt-cache", f'case "$2" in {known}) exit 0;; esac; exit 1')
        self.tool(
            "apt-get",
            f'echo "$@" >>{log}\nfor name in "$@"; do case "$name" in\n{cases}esac; done',
        )
        return log

    def setup(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / "bash"), str(self.checkout / ".ci/setup"), *more],
            env={"PATH": str(self.bin)},
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_complete_machine_is_left_in_silence(machine: Machine) -> None:
    for server in SERVERS:
        machine.tool(server)
    ran = machine.setup()
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_without_root_one_line_says_what_is_missing(machine: Machine) -> None:
    machine.tool("java")
    machine.tool("postgres")
    (machine.bin / "h2.jar").unlink()
    ran = machine.setup()
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr.splitlines() == [
        "setup: missing, so the tests and examples that need them are skipped; get them with: "
        "apt-get install etcd-server etcd-client redis-server libh2-java"
    ]


def test_root_with_apt_gets_what_is_missing_and_nothing_else(machine: Machine) -> None:
    machine.tool("redis-server")
    (machine.bin / "hsqldb.jar").unlink()
    (machine.bin / "ip").unlink()
    log = machine.with_apt()
    ran = machine.setup()
    assert ran.returncode == 0 and "missing" not in ran.stderr
    asked = [line.split() for line in log.read_text().splitlines()]
    installed = {
        name
        for line in asked
        if line[0] == "install"
        for name in line[1:]
        if not name.startswith("-")
    }
    assert installed == {
        "openjdk-17-jre-headless",
        "etcd-server",
        "etcd-client",
        "postgresql",
        "libhsqldb-java",
        "iproute2",
    }
    assert machine.setup().stderr == ""


def test_what_we_are_compared_with_is_got_only_where_it_is_asked_for(machine: Machine) -> None:
    for server in SERVERS:
        machine.tool(server)
    log = machine.with_apt()
    assert machine.setup().stderr == "" and not log.exists()
    ran = machine.setup("peers")
    assert ran.returncode == 0 and "missing" not in ran.stderr
    asked = log.read_text()
    assert "rabbitmq-server" in asked and "nats-server" in asked and "etcd" not in asked
    assert machine.setup("peers").stderr == ""


def test_a_newer_java_is_taken_where_17_is_gone(machine: Machine) -> None:
    for server in SERVERS[1:]:
        machine.tool(server)
    log = machine.with_apt(known="openjdk-21-jre-headless")
    machine.setup()
    assert "openjdk-21-jre-headless" in log.read_text()
    assert "openjdk-17" not in log.read_text().replace("missing", "")


def test_no_python_is_told(machine: Machine) -> None:
    (machine.checkout / ".venv/.installed").unlink()
    ran = machine.setup()
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("setup: Python 3.11 or later is missing")
