"""A topology on hosts, as tests, the long run and the benchmarks use it: what they do and ask.

What it answers of messages comes from the witnesses' notes alone; what it answers of the product
(who runs where) is only used to aim faults and to wait.
"""

from __future__ import annotations

import itertools
import json
import select
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from tests.hosts import kernel, notes
from tests.hosts.host import PYTHON, Host
from tests.hosts.hosts import Hosts
from tests.hosts.judge import Verdict, judge
from tests.hosts.notes import Acknowledged, Handled, Refused

ANSWER_S_MAX = 60
END_S_MAX = 90
SAID_CHARS = 3_000
PARTITIONS = 6
LEASE_S = 2.0

_numbers = itertools.count(1)


class Unanswered(Exception):
    """Raised when a desk did not answer in time, or answered with an error of the product."""


class Desk:
    """A driver in a host; see `inside.desk`. One that did not answer in time is no longer used."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._log: IO[bytes] = (host.rack.folder / f"desk-{host.name}.log").open("ab")
        self._process = host.start(
            [PYTHON, "-m", "tests.hosts.inside.desk"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._rest = b""
        self._read(ANSWER_S_MAX)

    def __call__(self, act: str, seconds: float = ANSWER_S_MAX, **given: Any) -> Any:
        """Do one of `inside.acts`."""
        assert self._process.stdin is not None
        if not self.is_open:
            raise Unanswered(f"the desk on {self.host.name} has ended")
        request = json.dumps({"act": act, "with": given})
        try:
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Unanswered(f"the desk on {self.host.name} has ended: {error}") from error
        return self._read(seconds)

    def _read(self, seconds: float) -> Any:
        out = self._process.stdout
        assert out is not None
        end_s = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready = select.select([out], [], [], max(0.0, end_s - time.monotonic()))[0]
            got = out.read1() if ready else b""  # type: ignore[attr-defined]
            if not got:
                self.close()
                why = "has ended" if ready else f"has not answered within {seconds} s"
                log = (self.host.rack.folder / f"desk-{self.host.name}.log").read_text()
                raise Unanswered(f"the desk on {self.host.name} {why}: {log[-1_000:]}")
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise Unanswered(answer["error"])
        return answer["answer"]

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it."""
        kernel.end_family(self._process)
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


class World:
    """One topology (queue `q`, group `g`) on a running cluster of hosts, and its witnesses."""

    def __init__(self, hosts: Hosts, desk: Desk, **options: Any) -> None:
        self.hosts, self.desk = hosts, desk
        self.name = f"t{next(_numbers)}"
        self.notes = hosts.notes / self.name
        self.notes.mkdir()
        self.partitions = options.pop("partitions", PARTITIONS)
        group = {"lease_ttl_seconds": LEASE_S, "commit_interval_ms": 50, "consumers": len(hosts)}
        self.options: dict[str, Any] = {
            "buffers": len(hosts),
            "append_timeout_ms": 60_000,
            "lease_ttl_seconds": LEASE_S,  # of buffers, too
            **options,
            "group": {**group, **options.pop("group", {})},
        }
        self._producers = itertools.count()

    # What is done

    def deploy(self) -> Self:
        """Deploy it, or deploy it again."""
        self.desk("deploy", 120, name=self.name, **self._given())
        return self

    def recover_registry(self) -> None:
        """Go on with what its registry holds."""
        self.desk("recover_registry", 120, name=self.name, **self._given())

    def _given(self) -> dict[str, Any]:
        return {"data": str(self.hosts.data), "partitions": self.partitions, **self.options}

    def start(
        self, consumers: int | None = None, work_s: float = 0.0, *, holding: bool = False
    ) -> None:
        """Start consumers, one a host when there are as many; `holding`: as `inside.holding`."""
        consumers = len(self.hosts) if consumers is None else consumers
        spread = {"num_cpus": 2, "scheduling_strategy": "SPREAD"}
        given = {"notes": str(self.notes), "consumers": consumers, "work_s": work_s}
        given["holding"] = holding
        self.desk("start", 90, name=self.name, **given, **spread)

    def start_at(self, kind: str, host: str) -> None:
        """Start one consumer on a host, with one of the handlers of `inside.pace`."""
        given = {"name": self.name, "kind": kind, "notes": str(self.notes), "host": host}
        self.desk("start_pace", 90, **given)

    def set_link_ports(self, ports: str) -> None:
        """Change the option on the running topology."""
        self.desk("set_link_ports", name=self.name, ports=ports)

    def upgrade(self) -> None:
        """What `pxrs up` does with new code: another coordinator first, then the rest."""
        self.desk("remove_coordinator", name=self.name)
        self.deploy()

    def shutdown(self) -> None:
        """End it gracefully."""
        self.desk("shutdown", 120, name=self.name)

    def begin_load(self, host: int, *options: str) -> Load:
        """Start a producer on a host."""
        return Load(self, self.hosts[host], f"p{next(self._producers)}", *options)

    @contextmanager
    def load(self, *hosts: int, per_second: float = 30) -> Iterator[None]:
        """Producers on these hosts while the block runs; then all their answers are known."""
        every = [self.begin_load(host, f"--per-second={per_second}") for host in hosts]
        try:
            for load in every:
                load.wait_up()
            yield
        finally:
            ended = [load.end() for load in every]
        assert all(ended), "; ".join(load.told() for load in every)

    def send(self, host: int, count: int) -> None:
        """Send so many messages, and wait until it is known what became of them."""
        load = self.begin_load(host, f"--count={count}", "--per-second=400")
        load.wait_up()
        assert load.end(), load.told()

    def kill_actor(self, name: str) -> tuple[int, int]:
        """SIGKILL an actor's process; answer its host and pid (inside)."""
        index, pid = self.actors()[name]
        self.hosts[index].kill(pid)
        return index, pid

    # What is asked

    def actors(self) -> dict[str, tuple[int, int]]:
        """Each living actor: its host's number, and its pid there."""
        places = {host.address: host.index for host in self.hosts}
        found = self.desk("actors", name=self.name)
        return {name: (places[address], pid) for name, (address, pid) in found.items()}

    def homes(self) -> dict[str, int]:
        """On which host the coordinator and each buffer is."""
        wanted = ("coordinator", "buffer/")
        return {n: host for n, (host, _) in self.actors().items() if n.startswith(wanted)}

    def one_to_lose(self) -> int:
        """A host with a buffer, and with neither the head nor the coordinator."""
        homes = self.homes()
        found = [
            host
            for name, host in sorted(homes.items())
            if host not in (0, homes["coordinator"]) and name.startswith("buffer/")
        ]
        assert found, f"every buffer is with the head or the coordinator: {homes}"
        return found[0]

    def partitions_of(self, host: int) -> set[int]:
        """The partitions whose logs are on a host."""
        slots = {name.partition("/")[2]: at for name, at in self.homes().items() if "/" in name}
        return {p for p in range(self.partitions) if slots[str(p % len(slots))] == host}

    def handled_since(self, at_s: float) -> set[int]:
        """The partitions of which messages were begun since then."""
        return {one.partition for one in self.handled() if one.from_s > at_s}

    def wait_back(self, name: str, pid: int, seconds: float = 30) -> int:
        """Wait until an actor is there with another pid; answer its host."""

        def back() -> Any:
            found = self.actors().get(name)
            return found is not None and found[1] != pid and (found[0],)

        host: int = self.until(back, seconds, f"{name} back")[0]
        return host

    def links(self) -> int:
        """How many connections of other nodes the buffers have."""
        return sum(links for links, _ in self.desk("links", name=self.name).values())

    def link_calls(self) -> int:
        """How many calls came over such connections."""
        return sum(calls for _, calls in self.desk("links", name=self.name).values())

    def group(self) -> Any:
        """The group's status."""
        return self.desk("group", name=self.name)

    def status(self) -> Any:
        """The topology's status."""
        return self.desk("status", name=self.name)

    def told(self) -> str:
        """Everything that status and doctor tell, in one text; or why they tell nothing."""
        try:
            text: str = self.desk("told", name=self.name)
            return text
        except Unanswered as error:
            return str(error)

    def handled(self) -> list[Handled]:
        """What handlers noted, in the order of time."""
        found = notes.of(Handled, notes.read(self.notes))
        return sorted(found, key=lambda one: one.from_s)

    def acknowledged(self) -> list[Acknowledged]:
        """What producers were told, in the order of time."""
        found = notes.of(Acknowledged, notes.read(self.notes))
        return sorted(found, key=lambda one: one.at_s)

    def refused(self) -> list[Refused]:
        """What producers were refused."""
        return notes.of(Refused, notes.read(self.notes))

    def until(
        self, check: Callable[[], Any], seconds: float, what: str, pause_s: float = 0.1
    ) -> Any:
        """Wait until `check` answers something true; a call that fails meanwhile is no answer."""

        def careful() -> Any:
            try:
                return check()
            except Unanswered:
                return None

        return kernel.wait_for(careful, seconds, what, pause_s)

    def settled(self, consumers: int | None = None, seconds: float = 60) -> Any:
        """Wait until so many consumers run and every partition has an owner; the status then."""
        wanted = len(self.hosts) if consumers is None else consumers

        def check() -> Any:
            status = self.group()
            running = [one for one in status["consumers"] if one["state"] == "running"]
            owned = sum(len(share) for share in status["owners"].values())
            whole = len(running) == wanted == len(status["owners"])
            return whole and owned == self.partitions and status

        try:
            return self.until(check, seconds, f"{wanted} consumers own every partition")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.told()}") from error

    def until_in_sync(self, seconds: float = 60) -> None:
        """Wait until no replica lacks anything."""

        def in_sync() -> bool:
            return "replicas_behind" not in [one["kind"] for one in self.status()["reports"]]

        try:
            self.until(in_sync, seconds, "all replicas are in sync")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.told()}") from error

    def rest(self, seconds: float = 60, given_up: Collection[int] = ()) -> None:
        """Wait until everything acknowledged was handled (or the time is over: see `verdict`)."""

        def done() -> bool:
            facts = notes.read(self.notes)
            seen = {(one.key, one.sequence) for one in notes.of(Handled, facts)}
            return all(
                (ack.key, ack.sequence) in seen
                for ack in notes.of(Acknowledged, facts)
                if ack.partition not in given_up
            )

        try:
            kernel.wait_for(done, seconds, "everything handled", 0.1)
        except TimeoutError:
            pass  # the judge says what is missing

    def verdict(self, seconds: float = 60, **given: Any) -> Verdict:
        """Come to rest, and judge; `given` as of `judge`."""
        self.rest(seconds, given.get("given_up", ()))
        return judge(notes.read(self.notes), **given)

    def close(self) -> None:
        """Take every actor of it away, as far as the desk can."""
        try:
            self.desk("kill", 60, name=self.name)
        except Unanswered:
            pass


class Load:
    """A producer's process on a host."""

    def __init__(self, world: World, host: Host, prefix: str, *options: str) -> None:
        self.host = host
        self._log = (world.hosts.rack.folder / f"producer-{world.name}-{prefix}.log").open("ab")
        command = [PYTHON, "-m", "tests.hosts.inside.produce", world.name, str(world.notes)]
        self._process = host.start(
            [*command, prefix, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def wait_up(self) -> None:
        """Wait until it sends."""
        out = self._process.stdout
        assert out is not None
        line = out.readline() if select.select([out], [], [], ANSWER_S_MAX)[0] else b""
        if line != b"up\n":
            raise Unanswered(f"the producer on {self.host.name} did not start: {self._log.name}")

    @property
    def lives(self) -> bool:
        """Whether its process is there."""
        return self._process.poll() is None

    def end(self) -> bool:
        """Have it end; whether it knows what became of every message."""
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            assert pipe is not None
            pipe.close()
        try:
            return self._process.wait(END_S_MAX) == 0
        except subprocess.TimeoutExpired:
            kernel.end_family(self._process)
            return False

    def told(self) -> str:
        """How it ended, and what it said last."""
        said = Path(self._log.name).read_text(errors="replace")[-SAID_CHARS:]
        return f"the producer on {self.host.name} ended with {self._process.returncode}: {said}"
