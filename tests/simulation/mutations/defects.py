"""Mends of defects that were found by reading, taken out: the simulator finds each again by itself.

`docs/simulation.md` lists them with the runs that it took; the numbers are of the list of defects.
"""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

# A power cut that an INTERVAL log does not survive whole, and a disk that comes back older.
LOSES = ("worn=1", "durability=0", "power_cut=20", "clock_jump=0")
# Retention beside power cuts that what is acknowledged survives; nobody goes back to what is gone.
RETAINS = ("retain=1", "worn=0", "durability=1", "seek=0", "segment_bytes=700")
SMALL = (*RETAINS, "partitions=1", "disk_bytes=90000", "send_interval_ms=30", "power_cut=0")

DEFECTS = (
    Mutation(
        "limits that a buffer reads of its disk are what its code compares (simulated)",
        (
            Change(
                "data/log_limits.py",
                "object.__setattr__(self, name, kind(getattr(self, name)))",
                "kind(getattr(self, name))",
            ),
            Change(
                "log/queues_file.py",
                "return cast(list[QueueSpec], QUEUES.decode(files.read_file(path)))",
                "import json\n\n"
                "        from pxrs_ray.data.log_limits import LogLimits\n\n"
                "        found = json.loads(files.read_file(path))\n"
                "        return [\n"
                "            QueueSpec(**{**told, 'limits': LogLimits(**told['limits'])})\n"
                "            for told in found\n"
                "        ]",
            ),
        ),
        ("SeenOffsetsOnce",),
        LOSES,
        note="the file's codec makes them too: both are gone. A power cut is then no reason to ask "
        "how far readers were",
    ),
    Mutation(
        "a reserve makes room for what retention must write (simulated)",
        (Change("log/disk_reserve.py", "self._files.unlink(self._path)", "pass"),),
        ("ComesToRest",),
        SMALL,
    ),
    Mutation(
        "a log whose file is to end for sure opens where its disk is full",
        (
            Change(
                "files.py",
                "        with contextlib.suppress(DiskFull):\n            self.write(fd",
                "        with contextlib.suppress():\n            self.write(fd",
            ),
        ),
        tests=("tests/unit/test_log_disk_full.py",),
    ),
    Mutation(
        "a log opens where its disk is full",
        (
            Change(
                "log/log_opening.py",
                "reserve.with_room(lambda: manifest.write(files, folder))",
                "manifest.write(files, folder)",
            ),
        ),
        ("ComesToRest",),
        (*SMALL, "log_restart=10"),
    ),
    Mutation(
        "a log waits until its confirmation is on disk (simulated)",
        (
            Change(
                "log/partition_log.py",
                "            self._lose_to(expected_end, now_ms)",
                '            self._waiting = ""\n            self._lose_to(expected_end, now_ms)',
            ),
        ),
        ("OffsetsOnce", "SeenOffsetsOnce"),
        (*LOSES, "disk_full=20"),
    ),
    Mutation(
        "one partition that cannot be read is refused alone (simulated)",
        (
            Change(
                "log/log_view.py",
                "        except OSError as error:\n            self._check_range(offset)",
                "        except ZeroDivisionError as error:\n            self._check_range(offset)",
            ),
            Change(
                "log/buffer_calls.py",
                "except Exception as raised:",
                "except PxrsError as raised:",
            ),
        ),
        ("NothingFails",),
        ("disk_trouble=15", "seek=10", "worn=0", "hot_bytes=1500"),
        note="the log makes a LogAway of it, and the reader would of anything: both are gone",
    ),
    Mutation(
        "what could not be opened is opened when that passes (simulated)",
        (Change("log/log_manager.py", "return passes(self._broken[place])", "return False"),),
        ("ComesToRest",),
        ("disk_trouble=20", "log_restart=20", "worn=0"),
    ),
    Mutation(
        "a clock that leaps makes no producer silent (simulated)",
        (
            Change(
                "log/producer_state.py",
                "min(max(0, now_ms - self._ticked_ms), STEP_MS_MAX)",
                "max(0, now_ms - self._ticked_ms)",
            ),
        ),
        ("AppendedOnce",),
        ("clock_jump=20", "leap_ms=100000000000", "slow=0.3", "worn=0"),
    ),
    Mutation(
        "what dropped frames knew is synced before they go (simulated)",
        (
            Change(
                "log/retained.py",
                "self._files.replace(self.folder / SNAPSHOT, data, sync=True)",
                "self._files.replace(self.folder / SNAPSHOT, data, sync=False)",
            ),
        ),
        ("AppendedOnce",),
        (*RETAINS, "power_cut=20", "slow=0.3", "slow_ms_max=1500"),
    ),
    Mutation(
        "a commit waits for as long as the registry is away",
        (
            Change(
                "processing/commit_wait.py",
                "return CommitWaits.SHOW if self.waits_s(now_s) >= SLOW_S else CommitWaits.WAIT",
                "if self.waits_s(now_s) >= 1.5:\n            raise TimeoutError('its registry')\n"
                "        return CommitWaits.WAIT",
            ),
        ),
        ("ComesToRest",),
        ("commit_mode=2", "lanes=0", "pulling=0", "store_outage=15"),
        note="what is raised there ends the worker: its partition stands still",
    ),
)
