"""What the hosts need of the kernel: namespaces, a look at processes from outside, their end."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.servers import ServiceMissing, skip_or_fail

COMMAND_S_MAX = 20
PR_SET_PDEATHSIG = 1
PROGRAMS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
PROGRAMS |= {"mount": "mount", "umount": "mount"}


def missing() -> str:
    """Say in one line what is missing for hosts; '' when they can be made."""
    if os.geteuid() != 0:
        return "hosts need root, for their namespaces"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"hosts need {program}: run `make setup` as root, or get the package {package}"
    probe = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc"]
    network = "ip link add px0 type bridge && ip link add px1 type veth peer name px2"
    mounts = "mount -t tmpfs -o size=1m none /mnt && mount --bind /etc/hosts /etc/hostname"
    tried = subprocess.run(
        [*probe, "sh", "-ec", f"{network} && {mounts}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
    )
    if tried.returncode:
        why = (tried.stderr.strip().splitlines() or ["no reason told"])[-1]
        return f"hosts need network, mount, PID and UTS namespaces, and here: {why}"
    return ""


def require_hosts() -> None:
    """Skip or fail a test for which hosts cannot be made.

    Who is not root is skipped, also under CI: that is how it was started, and no defect. Root
    without programs or namespaces is skipped on a developer's machine and fails where CI is set.
    """
    if os.geteuid() != 0:
        import pytest

        pytest.skip(missing())
    reason = missing()
    if reason:
        skip_or_fail(reason)


def require_or_raise() -> None:
    """The same for programs that are no tests."""
    reason = missing()
    if reason:
        raise ServiceMissing(reason)


def die_with_parent() -> None:
    """In a child, before it becomes its program: the kernel ends it when this process ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def begin(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that never outlives this one (start it from the main thread)."""
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True, **options}
    return subprocess.Popen(command, preexec_fn=die_with_parent, **given)


def do(command: list[str], text: str = "") -> str:
    """Run a short command with `text` as its input; answer what it printed, raise if it failed."""
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=COMMAND_S_MAX
    )
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}\n{text}")
    return done.stdout


def wait_for(check: Callable[[], Any], seconds: float, what: str, pause_s: float = 0.01) -> Any:
    """Wait until `check` answers something true, and answer that."""
    end_s = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > end_s:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(pause_s)
    return found


def started_at(pid: int) -> str:
    """When a process started, in the kernel's ticks; '' when there is none. Tells pids apart."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def namespace(pid: int, kind: str) -> str:
    """Which namespace of that kind a process is in; '' when there is no such process."""
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""


def inhabitants(pid_namespace: str) -> dict[int, int]:
    """The processes of a PID namespace: pid as they know it -> pid as we know it."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or namespace(int(folder.name), "pid") != pid_namespace:
            continue
        try:
            status = (folder / "status").read_text()
        except OSError:
            continue
        lines = [line for line in status.splitlines() if line.startswith("NSpid:")]
        if lines:
            found[int(lines[0].split()[-1])] = int(folder.name)
    return found


def command_line(pid: int) -> str:
    """The command line of a process; '' when it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def end(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Signal processes; those that are gone are no error."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def end_family(process: subprocess.Popen[bytes]) -> None:
    """End what an nsenter waits for, then the nsenter."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        end([int(pid) for pid in children.read_text().split()])
    except OSError:
        pass
    process.kill()
    process.wait(COMMAND_S_MAX)
