"""`begin`: has this process's program run by a fork of `warm_server`, and ends as that fork does.

Rules of this file. It runs in each process that Ray starts, before anything else: it loads only
what is part of Python itself, for what it takes is what a start still takes. This process stays for
as long as the fork does: who waits for it, or sends it a signal, has it of the fork; and the server
kills a fork whose process is gone. Where anything fails before the fork is there, the program runs
here, as if there were no server.
"""

from __future__ import annotations

import _signal as signal
import _socket as socket
import marshal
import posix
import sys
import time
import zlib

MESSAGE_BYTES_MAX = 1 << 20
FILES_MAX = 200
WORKER = "default_worker.py"
# What a program has read of its environment when it has loaded Ray: forks of one server share it.
READ_AT_ONCE = (b"RAY_", b"PYTHON", b"OMP_", b"PATH", b"HOME", b"TMPDIR")
# And what none reads so early, but workers the first two, who are of one job and one node.
READ_BY_WORKERS = frozenset({b"RAY_JOB_ID", b"RAY_RAYLET_PID"})
READ_LATER = frozenset({b"RAY_NODE_ID", b"RAY_enable_pipe_based_agent_to_parent_health_check"})
# How Ray has some of its processes allocate.
NOT_OF_SERVER = frozenset({b"LD_PRELOAD"})
LOADED_S_MAX = 20.0
LOOK_S = 0.03
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def begin(words: list[str], at: int) -> None:
    """Returns only where this process is to run its program, which is `words[at:]`, itself."""
    server = _server(words[at])
    if server is None:
        return
    files = [number for number in _open_files() if number != server.fileno()]
    asked = {
        "words": words[at:],
        "unbuffered": "-u" in words[:at],
        "environment": dict(posix.environ),
        "folder": posix.getcwd(),
        "files": files,
        "group": posix.getpgrp(),
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    }
    said = marshal.dumps(asked)
    if len(said) > MESSAGE_BYTES_MAX or len(files) > FILES_MAX:
        server.close()
        return
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE_BYTES_MAX)
        server.sendmsg([said], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
        told = server.recv(64)
    except OSError:
        told = b""
    if not told:
        server.close()
        return
    for number in files:
        posix.close(number)
    _end_as(int(told), server)


def _read_at_once(program: str) -> dict[bytes, bytes]:
    """What a server of this program has of its environment, and every fork of it."""
    later = READ_LATER if program.endswith(WORKER) else READ_LATER | READ_BY_WORKERS
    return {n: v for n, v in posix.environ.items() if n.startswith(READ_AT_ONCE) and n not in later}


def _name_of_server(program: str) -> str:
    """Of who forks what is like this process: same Python, same variables, same namespaces."""
    read = sorted(_read_at_once(program).items())
    where = [posix.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("mnt", "net", "pid")]
    like = marshal.dumps([sys.executable, read, where, posix.getsid(0), posix.getpriority(0, 0)])
    return f"\0pxrs-warm-ray-{zlib.crc32(like):08x}-{zlib.adler32(like):08x}"


def _open_files() -> list[int]:
    """Those that this process has from who started it."""
    found = []
    for number in map(int, posix.listdir("/proc/self/fd")):
        try:
            if posix.get_inheritable(number):
                found.append(number)
        except OSError:  # it was the folder that was read
            continue
    return found


def _server(program: str) -> socket.socket | None:
    """A connection to the server of programs like this, which is begun where there is none; None
    where it does not come to be."""
    name = _name_of_server(program)
    end_s = time.monotonic() + LOADED_S_MAX
    while time.monotonic() < end_s:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            server.connect(name)
            return server
        except OSError:  # nobody has that name, or who has it is loading
            server.close()
        _begin_server(name, program)
        time.sleep(LOOK_S)
    return None


def _begin_server(name: str, program: str) -> None:
    """Have a server of that name, unless there is one."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.bind(name)
    except OSError:
        server.close()
        return
    if posix.fork() == 0:
        try:
            if posix.fork() == 0:
                file = __file__.replace("warm_start", "warm_server")
                words = [sys.executable, file, str(server.fileno()), program]
                given = {n: v for n, v in posix.environ.items() if n not in NOT_OF_SERVER}
                posix.set_inheritable(server.fileno(), True)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                posix.execve(sys.executable, words, given)
        finally:
            posix._exit(0)
    server.close()
    posix.wait()


def _end_as(pid: int, server: socket.socket) -> None:
    """Pass on what comes to this process, and end when and how the other one ends."""

    def pass_on(number: int, frame: object) -> None:
        try:
            posix.kill(pid, number)
        except ProcessLookupError:
            pass

    for number in FORWARDED:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        ended = server.recv(64)
    except OSError:
        ended = b""
    status = int(ended or 255 << 8)
    if posix.WIFSIGNALED(status):
        number = posix.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        posix.kill(posix.getpid(), number)
    posix._exit(posix.waitstatus_to_exitcode(status))
