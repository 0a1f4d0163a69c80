"""One host: namespaces of its own around a disk of its own, and what can be done to it.

Pids are those of the host's own PID namespace, as its processes know them; `outside` answers what
the machine calls them. Times that witnesses note are CLOCK_MONOTONIC, which all hosts share.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from tests.hosts import kernel
from tests.hosts.rack import GATEWAY, NETWORK, Rack
from tests.light_ray import AGENTS_LOOK_SELDOM, NO_WORKERS_AHEAD, python_path

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(sys.executable).parent
FIRST = Path(__file__).with_name("first_process.py")
RAY = str(VENV / "ray")
PYTHON = sys.executable
HEAD_PORT = 6379
UP_S_MAX = 20
RAY_UP_S_MAX = 90
GONE_S_MAX = 20
OUTPUT_CHARS = 4_000
OBJECT_STORE_BYTES = 100_000_000
BALLAST = "ballast"


class Host:
    """A host of a `Hosts`, which makes it. Off until `power_on`."""

    def __init__(self, rack: Rack, index: int, token: str, disk_bytes: int | None) -> None:
        self.rack, self.index = rack, index
        self.name, self.address = f"h{index}", f"{NETWORK}.{index + 1}"
        self.mac = f"02:00:0a:63:00:{index + 1:02x}"
        self.folder = rack.folder / self.name
        self.disk, self.home = self.folder / "disk", self.folder / "home"
        self.boot_id = ""
        self.data = rack.folder / "data"
        self._outer: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._pid_namespace = ""
        for folder in (self.disk, self.home, self.data):
            folder.mkdir(parents=True, exist_ok=True)
        if token:
            key = self.home / ".ray" / "auth_token"
            key.parent.mkdir()
            key.write_text(token)
            key.chmod(0o600)
        if disk_bytes is not None:
            rack.bounded(self.disk, disk_bytes)

    # Power

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        return self._init != 0

    def power_on(self, *, empty_disk: bool = False) -> None:
        """Boot: a new boot id, a /tmp/ray without files, the same disk or an emptied one."""
        assert not self.is_on, f"{self.name} is on"
        if empty_disk:
            self.rack.enter([PYTHON, "-c", _EMPTY, str(self.disk)])
        self.boot_id = str(uuid.uuid4())
        boot = self.folder / f"boot-{self.boot_id}"
        (boot / "ray").mkdir(parents=True)
        (boot / "id").write_text(self.boot_id + "\n")
        (boot / "resolv").write_text("")
        Path("/tmp/ray").mkdir(exist_ok=True)
        binds = {
            self.disk: self.data,
            boot / "ray": "/tmp/ray",
            boot / "id": "/proc/sys/kernel/random/boot_id",
            boot / "resolv": "/etc/resolv.conf",
            self.rack.folder / "hosts": "/etc/hosts",
        }
        unshare = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        program = [PYTHON, "-I", "-S", str(FIRST), self.name]
        self._outer = kernel.begin(
            [
                *("nsenter", "--target", str(self.rack.pid), "--mount", "--"),
                *(*unshare, "--mount-proc", *program),
                *(f"{source}:{target}" for source, target in binds.items()),
            ],
            stdout=subprocess.PIPE,
        )
        self.rack.note(self._outer.pid)
        assert self._outer.stdout is not None
        if self._outer.stdout.readline() != b"up\n":
            raise OSError(f"{self.name} did not boot")
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text()
        self._init = int(children.split()[0])
        self.rack.note(self._init)
        self._pid_namespace = kernel.namespace(self._init, "pid")
        try:
            self._plug_in()
        except BaseException:
            self.power_off()
            raise

    @property
    def _port(self) -> str:
        return f"s{self.index}"

    def _plug_in(self) -> None:
        port = self._port
        self.rack.ip(
            f"link add {port} type veth peer name eth0 netns {self._init} address {self.mac}",
            f"link set {port} master br0",
            f"link set {port} up",
        )
        self.ip(
            "link set lo up",
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {GATEWAY}",
        )

    def power_off(self) -> None:
        """Cut the power: no process gets to say anything more. See also `Hosts.power_off`."""
        if self._outer is None:
            return
        kernel.end([self._init] if self._init else [])
        self._outer.kill()
        self._outer.wait(GONE_S_MAX)
        if self._outer.stdout is not None:
            self._outer.stdout.close()
        gone = self._pid_namespace
        self._outer, self._init, self._pid_namespace = None, 0, ""
        if gone:
            kernel.wait_for(lambda: not kernel.inhabitants(gone), GONE_S_MAX, f"{self.name} off")
        # The kernel takes a network namespace away in its own time: its end of the cable may stay
        # for a while, and answer, or be in the way of the next one.
        try:
            self.rack.ip(f"link del {self._port}")
        except OSError:
            pass

    def ip(self, *lines: str) -> None:
        """Commands of ip(8) inside."""
        enter = ["nsenter", "--target", str(self._init), "--net", "--", "ip", "-batch", "-"]
        kernel.do(enter, "\n".join(lines) + "\n")

    # Processes

    def environment(self, *, bare: bool = False) -> dict[str, str]:
        """What commands inside see; `bare`: as a user who has just logged in, and no more."""
        path = f"{VENV}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        user = {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8"}
        if bare:
            return user
        return {
            **user,
            "PYTHONPATH": python_path(ROOT),
            "RAY_AUTH_MODE": "token",
            "PXRS_HOST": self.name,
        }

    def start(
        self,
        command: Iterable[str],
        *,
        environment: Mapping[str, str] | None = None,
        bare: bool = False,
        folder: Path | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a process inside that may go on; its `wait` is the command's own end."""
        assert self.is_on, f"{self.name} is off"
        enter = ["nsenter", "--target", str(self._init), "--mount", "--net", "--pid", "--uts"]
        # The shell is the parent, outside of the PID namespace: nsenter itself, as a parent, would
        # stop with a frozen child and stay so.
        enter += ["--no-fork", f"--wdns={folder or self.home}", "--", "sh", "-c", _RUN, "sh"]
        given = {**self.environment(bare=bare), **(environment or {})}
        return kernel.begin([*enter, *command], env=given, **options)

    def run(
        self, command: Iterable[str], seconds: float = 60, *, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end; `options` as of `start`. Raises when it fails."""
        told = list(command)
        process = self.start(told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        try:
            output = process.communicate(timeout=seconds)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            kernel.end_family(process)
            raise
        done = subprocess.CompletedProcess(told, process.returncode, output)
        if check and done.returncode:
            shown = output[-OUTPUT_CHARS:]
            raise OSError(f"{self.name}: {' '.join(told)} ended with {done.returncode}:\n{shown}")
        return done

    def processes(self) -> dict[int, int]:
        """Every process: pid inside -> pid outside."""
        return kernel.inhabitants(self._pid_namespace) if self.is_on else {}

    def outside(self, pid: int) -> int:
        """What the machine calls a process of this host. Raises when there is none."""
        found = self.processes().get(pid)
        if found is None:
            raise ProcessLookupError(f"no process {pid} on {self.name}")
        return found

    def find(self, part: str) -> list[int]:
        """The pids (inside) of processes whose command line has `part` in it."""
        every = self.processes().items()
        return sorted(inside for inside, pid in every if part in kernel.command_line(pid))

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal one process, by its pid inside."""
        os.kill(self.outside(pid), number)

    def freeze(self, pids: Iterable[int] | None = None) -> None:
        """SIGSTOP these processes (by their pids inside), or all but the first one."""
        every = self.processes()
        kernel.end(_chosen(every, pids), signal.SIGSTOP)
        if pids is None:  # whoever was begun meanwhile
            kernel.end(_chosen(self.processes(), None), signal.SIGSTOP)

    def thaw(self, pids: Iterable[int] | None = None) -> None:
        """Let frozen processes go on."""
        kernel.end(_chosen(self.processes(), pids), signal.SIGCONT)

    @staticmethod
    def program(name: str) -> Path:
        """A program of the product or of Ray."""
        return VENV / name

    # Disk

    def fill_disk(self, leave_bytes: int = 0) -> None:
        """Leave that much space on a disk of bounded size."""
        self.run([PYTHON, "-c", _FILL, str(self.data / BALLAST), str(leave_bytes)])

    def free_disk(self) -> None:
        """Take away what `fill_disk` wrote."""
        self.run(["rm", "-f", str(self.data / BALLAST)])

    # Ray

    def begin_ray(
        self,
        head: Host | None = None,
        cpus: float = 2,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Begin to start a Ray node, of the head's cluster or as its head; `ray start` itself."""
        where = ["--head", f"--port={HEAD_PORT}", "--include-dashboard=false"]
        if head is not None:
            where = [f"--address={head.address}:{HEAD_PORT}"]
        command = [
            *(RAY, "start", *where, f"--node-ip-address={self.address}", f"--num-cpus={cpus}"),
            *(f"--object-store-memory={OBJECT_STORE_BYTES}", "--include-log-monitor=false"),
            *("--disable-usage-stats", f"--resources={json.dumps({self.name: 1000})}"),
            f"--labels=zone={'odd' if self.index % 2 else 'even'}",
        ]
        given = {**NO_WORKERS_AHEAD, **AGENTS_LOOK_SELDOM, **(environment or {})}
        return self.start(command, environment=given, stdout=output, stderr=subprocess.STDOUT)

    def stop_ray(self) -> None:
        """Kill every process but the first one: Ray, and whatever else runs."""
        kernel.end(_chosen(self.processes(), None))
        kernel.wait_for(lambda: len(self.processes()) <= 1, GONE_S_MAX, f"{self.name} empty")


_RUN = '"$@"; exit $?'

_EMPTY = """
import shutil, sys
from pathlib import Path
for one in Path(sys.argv[1]).iterdir():
    shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
"""

_FILL = """
import os, sys
path, leave = sys.argv[1], int(sys.argv[2])
with open(path, 'ab', buffering=0) as file:
    for size in (1 << 20, 1 << 12, 1):
        try:
            while True:
                space = os.statvfs(path)
                if space.f_bavail * space.f_bsize < leave + size:
                    break
                file.write(bytes(size))
        except OSError:
            continue
"""


def _chosen(every: dict[int, int], pids: Iterable[int] | None) -> list[int]:
    if pids is None:
        return [outside for inside, outside in every.items() if inside != 1]
    return [every[pid] for pid in pids if pid in every]
