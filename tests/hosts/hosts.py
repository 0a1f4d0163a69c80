"""N hosts on one switch: their network, which can be cut, and a Ray cluster over them.

    with Hosts(3) as hosts:
        hosts.start_ray()                     # hosts[0] is the head
        hosts[1].run(["ray", "status"])
        hosts.cut(2)                          # silently, both ways; also way="in", way="out"
        hosts.heal()
        hosts.power_off(1)
        hosts.power_on(1)

Whatever happens in the block, nothing of it is left behind. Make it in the main thread.
"""

from __future__ import annotations

import secrets
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.hosts import kernel
from tests.hosts.host import OUTPUT_CHARS, RAY, RAY_UP_S_MAX, Host
from tests.hosts.rack import Rack

Way = Literal["both", "in", "out"]

# Frames to this address reach nobody, and nobody is told: a cut as a switch makes it.
NOBODY = "02:00:00:00:ff:ff"
# A silent node counts as dead after about three seconds; Ray usually waits for thirty.
NOTICE = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


class Hosts:
    """The hosts of one run. `disk_bytes` bounds every disk, which then is in memory.

    With `token=False` no host has a Ray token: for a test that gets and copies one itself, as a
    user would, with `host.run(..., bare=True)`.
    """

    def __init__(self, count: int, *, disk_bytes: int | None = None, token: bool = True) -> None:
        self.rack = Rack()
        self._cut: set[tuple[int, int]] = set()
        self._hosts: list[Host] = []
        self._environment: dict[str, str] = {}
        self._cpus: float = 2
        try:
            secret = secrets.token_hex(32) if token else ""
            names = "".join(f"10.99.0.{i + 1} h{i}\n" for i in range(count))
            (self.rack.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            self.notes.mkdir()
            for index in range(count):
                self._hosts.append(Host(self.rack, index, secret, disk_bytes))
            for host in self._hosts:
                self.power_on(host.index)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def notes(self) -> Path:
        """A folder that every host sees at this path, and that outlives their power: witnesses'."""
        return self.rack.folder / "notes"

    @property
    def data(self) -> Path:
        """Where each host sees its own disk."""
        return self._hosts[0].data

    # Power

    def power_off(self, index: int, *, silent: bool = True) -> None:
        """Cut a host's power; `silent`: no connection is closed either, as in the real case."""
        if silent:
            self._apply(self._cut | set(self._pairs(index, "both")))
        self._hosts[index].power_off()
        self._apply(self._cut)

    def power_on(self, index: int, *, empty_disk: bool = False) -> None:
        """Boot a host; cuts of its link that were not healed hold on."""
        host = self._hosts[index]
        host.power_on(empty_disk=empty_disk)
        self._tell(host)

    # Network

    def cut(self, index: int, way: Way = "both", others: Iterable[int] | None = None) -> None:
        """Drop silently what a host sends ("out"), what is sent to it ("in"), or both.

        With `others`, only between it and them.
        """
        self._apply(self._cut | set(self._pairs(index, way, others)))
        self._cut |= set(self._pairs(index, way, others))

    def heal(self, index: int | None = None) -> None:
        """Mend every cut, or every one of this host."""
        if index is None:
            self._cut = set()
        else:
            self._cut -= set(self._pairs(index, "both"))
        self._apply(self._cut)

    def _pairs(
        self, index: int, way: Way, others: Iterable[int] | None = None
    ) -> list[tuple[int, int]]:
        wanted = [host.index for host in self._hosts] if others is None else list(others)
        found = [(index, other) for other in wanted if other != index and way != "in"]
        return found + [(other, index) for other in wanted if other != index and way != "out"]

    def _apply(self, cut: set[tuple[int, int]]) -> None:
        for host in self._hosts:
            if host.is_on:
                self._tell(host, cut)

    def _tell(self, host: Host, cut: set[tuple[int, int]] | None = None) -> None:
        """Tell a host under which link address each other one is; nobody's where it is cut."""
        cut = self._cut if cut is None else cut
        lines = []
        for other in self._hosts:
            if other is not host:
                mac = NOBODY if (host.index, other.index) in cut else other.mac
                lines.append(f"neigh replace {other.address} lladdr {mac} dev eth0 nud permanent")
        if lines:
            host.ip(*lines)

    # Ray

    def start_ray(
        self,
        indices: Iterable[int] | None = None,
        *,
        cpus: float = 2,
        environment: Mapping[str, str] = NOTICE,
    ) -> None:
        """Start the cluster: the head first (hosts[0]), then the others at the same time."""
        self._environment, self._cpus = dict(environment), cpus
        wanted = list(range(len(self._hosts))) if indices is None else list(indices)
        if 0 in wanted:
            self._start_ray([0])
        self._start_ray([index for index in wanted if index != 0])

    def _start_ray(self, indices: list[int]) -> None:
        with tempfile.TemporaryFile() as output:
            begun: list[tuple[Host, subprocess.Popen[bytes]]] = []
            for index in indices:
                host = self._hosts[index]
                head = None if index == 0 else self._hosts[0]
                begun.append((host, host.begin_ray(head, self._cpus, self._environment, output)))
            for host, process in begun:
                if process.wait(RAY_UP_S_MAX):
                    output.seek(0)
                    told = output.read().decode(errors="replace")[-OUTPUT_CHARS:]
                    raise OSError(f"{host.name}: Ray did not start:\n{told}")

    def ray_again(self, *indices: int) -> None:
        """Start the Ray nodes of hosts that were powered on again."""
        self._start_ray(list(indices))

    def power_cycle(self) -> None:
        """Cut the power of every host; then all are there again, with Ray."""
        for host in self._hosts:
            self.power_off(host.index)
        for host in self._hosts:
            self.power_on(host.index)
        self.ray_where_missing()

    def ray_where_missing(self) -> bool:
        """Have a Ray node on every host, as `start_ray` made them; whether all of Ray is new.

        It is without the head: Ray's GCS kept what it knew in memory.
        """
        if not self._hosts[0].find("gcs_server"):
            for host in self._hosts:
                host.stop_ray()
            self.start_ray(cpus=self._cpus, environment=self._environment)
            return True
        missing = [host.index for host in self._hosts if not host.find("raylet/raylet")]
        for index in missing:
            self._hosts[index].stop_ray()
        self._start_ray(missing)
        return False

    def drain(self, index: int, seconds: float = 300) -> None:
        """Have Ray drain a host's node, as an autoscaler does before it takes the host away."""
        head = self._hosts[0]
        node = self.node_id(index)
        head.run(
            [
                *(RAY, "drain-node", f"--address={head.address}:6379", f"--node-id={node}"),
                *("--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=a test"),
                f"--deadline-remaining-seconds={round(seconds)}",
            ]
        )

    def node_id(self, index: int) -> str:
        """The id of the Ray node that runs on a host now."""
        host = self._hosts[index]
        raylets = [host.outside(pid) for pid in host.find("raylet/raylet")]
        for pid in raylets:
            for part in kernel.command_line(pid).split():
                if part.startswith("--node_id="):
                    return part.partition("=")[2]
        raise ProcessLookupError(f"no raylet on {host.name}")

    def close(self) -> None:
        """End every process, take away every namespace, mount and folder. Harmless twice."""
        try:
            for host in self._hosts:
                host.power_off()
        finally:
            self.rack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
