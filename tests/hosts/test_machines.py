"""The hosts themselves: apart from one another, joined by a network that can be cut, gone after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts import kernel
from tests.hosts.host import PYTHON, ROOT
from tests.hosts.hosts import Hosts, Way
from tests.hosts.rack import Rack, sweep

DISK_BYTES = 4 << 20


@pytest.fixture(scope="module")
def pair() -> Iterator[Hosts]:
    kernel.require_hosts()
    with Hosts(2, disk_bytes=DISK_BYTES) as hosts:
        yield hosts


def spoken(hosts: Hosts, frm: int, to: int) -> bool:
    """Whether a datagram from one host comes to the other, before one that it sends to itself."""
    there = hosts[to].address
    listen = hosts[to].start([PYTHON, "-S", "-c", LISTEN, there], stdout=subprocess.PIPE)
    with listen:
        assert listen.stdout is not None and listen.stdout.readline() == b"up\n"
        hosts[frm].run([PYTHON, "-S", "-c", SAY, there, "heard"])
        hosts[to].run([PYTHON, "-S", "-c", SAY, there, "nothing"])
        return listen.stdout.readline() == b"heard\n"


LISTEN = """
import socket, sys
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.settimeout(30)
listener.bind((sys.argv[1], 7000))
print('up', flush=True)
print(listener.recv(10).decode())
"""
SAY = """
import socket, sys
speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
speaker.sendto(sys.argv[2].encode(), (sys.argv[1], 7000))
"""


@pytest.mark.parametrize(("way", "out", "back"), [("both", 0, 0), ("out", 0, 1), ("in", 1, 0)])
def test_a_link_is_cut_silently_and_healed(pair: Hosts, way: Way, out: int, back: int) -> None:
    assert spoken(pair, 0, 1) and spoken(pair, 1, 0)
    pair.cut(0, way)
    assert spoken(pair, 0, 1) is bool(out) and spoken(pair, 1, 0) is bool(back)
    pair.heal()
    assert spoken(pair, 0, 1) and spoken(pair, 1, 0)


def test_each_has_a_disk_a_boot_id_a_name_and_a_ray_folder_of_its_own(pair: Hosts) -> None:
    for host in pair:
        host.run(["sh", "-c", f"echo {host.name} >{host.data}/it; touch /tmp/ray/{host.name}"])
    seen = [
        host.run(
            [
                *("sh", "-c"),
                f"hostname; cat {host.data}/it /proc/sys/kernel/random/boot_id; ls /tmp/ray",
            ]
        ).stdout.split()
        for host in pair
    ]
    assert [one[0] for one in seen] == [one[1] for one in seen] == ["h0", "h1"]
    assert [one[3:] for one in seen] == [["h0"], ["h1"]]
    assert len({one[2] for one in seen}) == 2 and not Path("/tmp/ray/h0").exists()


def test_power_comes_back_with_the_disk_and_another_boot_id(pair: Hosts) -> None:
    host = pair[1]
    host.run(["sh", "-c", f"echo kept >{host.data}/file; touch /tmp/ray/gone"])
    alive, before = host.start(["sleep", "1000"]), host.boot_id
    pair.power_off(1)
    assert alive.wait(5) != 0 and not host.is_on and host.processes() == {}
    pair.power_on(1)
    assert host.run(["cat", f"{host.data}/file"]).stdout == "kept\n"
    assert host.run(["ls", "/tmp/ray"]).stdout == ""
    assert host.boot_id != before
    assert spoken(pair, 0, 1) and spoken(pair, 1, 0)
    pair.power_off(1)
    pair.power_on(1, empty_disk=True)
    assert host.run(["ls", str(host.data)]).stdout == ""


def test_power_comes_and_goes_quickly(pair: Hosts) -> None:
    for _ in range(5):
        sleeper = pair[1].start(["sleep", "1000"])
        pair.power_off(1)
        assert sleeper.wait(5) != 0
        pair.power_on(1)
        assert spoken(pair, 0, 1) and spoken(pair, 1, 0)


def test_a_cut_outlasts_the_power(pair: Hosts) -> None:
    pair.cut(1)
    pair.power_off(1)
    pair.power_on(1)
    assert not spoken(pair, 0, 1) and not spoken(pair, 1, 0)
    pair.heal(1)
    assert spoken(pair, 0, 1) and spoken(pair, 1, 0)


def test_a_process_is_killed_and_frozen_by_its_pid_inside(pair: Hosts) -> None:
    host = pair[0]
    process = host.start(["sleep", "1234"])
    (pid,) = kernel.wait_for(lambda: host.find("sleep 1234"), 5, "the process")
    outside = host.outside(pid)
    assert pid != outside

    def state() -> str:
        return Path(f"/proc/{outside}/stat").read_text().rpartition(")")[2].split()[0]

    host.freeze([pid])
    kernel.wait_for(lambda: state() == "T", 5, "frozen")
    host.thaw([pid])
    kernel.wait_for(lambda: state() == "S", 5, "thawed")
    host.freeze()
    kernel.wait_for(lambda: state() == "T", 5, "frozen with its host")
    host.thaw()
    host.kill(pid)
    process.wait(5)
    kernel.wait_for(lambda: not host.find("sleep 1234"), 5, "its end")


def test_a_disk_is_full_and_free_again(pair: Hosts) -> None:
    host = pair[0]
    host.fill_disk()
    full = host.run(["sh", "-c", f"head -c 5000 /dev/zero >{host.data}/more"], check=False)
    assert "No space left" in full.stdout
    host.free_disk()
    host.run(["sh", "-c", f"head -c 5000 /dev/zero >{host.data}/more"])


def test_a_user_who_has_just_logged_in_finds_an_empty_home_and_no_settings(
    bare_hosts: Callable[..., Hosts],
) -> None:
    host = bare_hosts(1, token=False)[0]
    seen = host.run(["env"], bare=True).stdout.splitlines()
    assert sorted(line.partition("=")[0] for line in seen) == ["HOME", "LANG", "PATH", "PWD"]
    assert host.run(
        ["sh", "-c", "ls -A ~; command -v ray; command -v pxrs"], bare=True
    ).stdout.split() == [
        str(host.program("ray")),
        str(host.program("pxrs")),
    ]


def test_nothing_is_left_behind(bare_hosts: Callable[..., Hosts]) -> None:
    hosts = bare_hosts(2)
    folder, before = hosts.rack.folder, mounts()
    sleepers = [host.start(["sleep", "1000"]) for host in hosts]
    outside = [pid for host in hosts for pid in host.processes().values()] + [hosts.rack.pid]
    assert len(outside) >= 3
    hosts.close()
    assert not folder.exists() and mounts() == before
    assert not [pid for pid in outside if kernel.command_line(pid)]
    assert all(sleeper.wait(5) for sleeper in sleepers)


def mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


VICTIM = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tests.hosts.hosts import Hosts
hosts = Hosts(2)
sleeper = hosts[0].start(["sleep", "4321"])
print(hosts.rack.folder, hosts.rack.pid, *hosts[1].processes().values(), flush=True)
time.sleep(100)
"""


def test_a_run_that_was_killed_leaves_a_folder_that_the_next_one_sweeps() -> None:
    kernel.require_hosts()
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(ROOT)], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    with victim:
        folder, *pids = victim.stdout.readline().decode().split()
        victim.send_signal(signal.SIGKILL)
    kernel.wait_for(
        lambda: not [pid for pid in pids if kernel.command_line(int(pid))], 10, "no process left"
    )
    assert Path(folder).exists()
    assert Path(folder) in sweep() and not Path(folder).exists()


def test_a_run_that_lives_is_not_swept() -> None:
    kernel.require_hosts()
    rack = Rack()
    try:
        assert rack.folder not in sweep() and rack.folder.exists()
        assert kernel.command_line(rack.pid)
    finally:
        rack.close()


def test_a_hosts_start_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.require_hosts()
    before = {path.name for path in rack_folders()}
    monkeypatch.setattr("tests.hosts.host.Host.ip", _fail)
    with pytest.raises(OSError, match="on purpose"):
        Hosts(2)
    assert {path.name for path in rack_folders()} <= before


def rack_folders() -> list[Path]:
    return [path for path in Path("/tmp").glob("pxrs-hosts-*") if os.access(path, os.R_OK)]


def _fail(*_: object) -> None:
    raise OSError("on purpose")


def test_hosts_are_quickly_there(bare_hosts: Callable[..., Hosts]) -> None:
    began_s = time.monotonic()
    bare_hosts(3)
    assert time.monotonic() - began_s < 10
