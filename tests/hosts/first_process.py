"""The first process of a host: makes its mounts and name, says "up", and buries the dead.

    python first_process.py HOSTNAME SOURCE:TARGET ...

It runs in namespaces of its own, with nothing but the standard library. Its end is the host's:
the kernel then kills every process of the PID namespace.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

SHM = ["-t", "tmpfs", "-o", "size=1g,mode=1777", "none", "/dev/shm"]


def main(name: str, binds: list[str]) -> None:
    """Never returns."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    socket.sethostname(name)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for bind in binds:
        source, _, target = bind.partition(":")
        subprocess.run(["mount", "--bind", source, target], check=True)
    subprocess.run(["mount", *SHM], check=True)
    os.write(1, b"up\n")
    while True:
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
