"""Guards of a buffer that keeps few of its files open, and of payloads that are frames."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

FEW = ("open_max=1", "partitions=8", "keys=12", "durability=1", "worn=0")
CUTS = (*FEW, "power_cut=6", "disk_slow=8", "send_interval_ms=10")
TORN = ("framed=1", "disk_trouble=8", "log_restart=10", "worn=0")

FEW_FILES = (
    Mutation(
        "what was written is synced before its file is closed to make room (simulated)",
        (
            Change(
                "bounded_files.py",
                "                    self._inner.sync(held.fd)\n",
                "                    pass\n",
            ),
        ),
        ("LogsKeep",),
        CUTS,
    ),
    Mutation(
        "a file's owner hears of the sync that failed when the file was closed (simulated)",
        (
            Change(
                "bounded_files.py",
                "                    held.error = error\n",
                "                    pass\n",
            ),
        ),
        ("NothingLost", "LogsKeep", "ComesToRest"),
        ("open_max=1", "partitions=4", "durability=1", "worn=0", "power_cut=6", "disk_trouble=8"),
        first_seed=160,
    ),
    Mutation(
        "a lock outlasts the closing of its file (simulated)",
        (
            Change(
                "bounded_files.py",
                "                return of_ours != device\n",
                "                return True\n",
            ),
            Change(
                "bounded_files.py",
                "            except LockHeld:\n                return False\n",
                "            except LockHeld:\n                return True\n",
            ),
        ),
        ("LogsKeep",),
        (*FEW, "second_buffer=15"),
    ),
    Mutation(
        "what a frame's payloads hold is no frame of the log (simulated)",
        (Change("log/scan.py", "begin = unpack_header(data).frame_bytes", "begin = 1"),),
        ("ComesToRest",),
        TORN,
    ),
    Mutation(
        "who begins a producer's life looks at what another process has begun",
        (
            Change(
                "log/producer_fence.py",
                "        if number:\n            self.read_again()\n",
                "",
            ),
        ),
        tests=("tests/unit/test_producer_fence.py",),
    ),
)
