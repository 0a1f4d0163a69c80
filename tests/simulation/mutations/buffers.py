"""Guards of the log, of the buffer's calls and of the sender, which the simulator alone notices."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

# Syncs that fail, then power cuts, where what is acknowledged survives them.
SYNCED = (
    "durability=1",
    "worn=0",
    "disk_trouble=15",
    "power_cut=15",
    "log_restart=10",
    "disk_slow=15",
    "send_interval_ms=30",
)
TORN = ("durability=1", "worn=0", "power_cut=30", "segment_bytes=700")
GIVEN_UP = ("append_timeout_ms=250", "slow=0.4", "slow_ms_max=600", "disk_slow=15", "worn=0")
TWO_BUFFERS = ("second_buffer=25", "worn=0", "send_interval_ms=30")
OLDER_BUFFERS = ("second_buffer=25", "worn=1", "send_interval_ms=30")
LIVES = ("producer_crash=15", "log_restart=10", "slow=0.3", "slow_ms_max=700", "worn=0")


def _one(
    guard: str,
    file: str,
    text: str,
    instead: str,
    *seen_by: str,
    settings: tuple[str, ...] = ("worn=0",),
    note: str = "",
) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), seen_by, settings, note)


BUFFERS = (
    _one(
        "a frame that is there already is not appended again",
        "log/partition_log.py",
        "        repeat = self._producers.repeat(header)\n",
        "        self._producers.expected(header.producer_id, 0)\n        repeat = None\n",
        "AppendedOnce",
        "NothingFails",
    ),
    _one(
        "what frames tell of producers is known after a restart",
        "log/log_opening.py",
        "        producers.record(header, now_ms)\n    return since",
        "        pass\n    return since",
        "AppendedOnce",
        "LogsKeep",
        settings=("log_restart=15", "slow=0.3", "worn=0"),
    ),
    _one(
        "a sync that failed fails for ever",
        "log/segmented_log.py",
        "                self._sync_error = error\n                raise",
        "                raise",
        "LogsKeep",
        "AppendedOnce",
        settings=SYNCED,
    ),
    _one(
        "what a sync may have lost is written again",
        "log/segmented_log.py",
        "                self._write_again(fd, self.segments[-1], synced)\n",
        "",
        "LogsKeep",
        "AppendedOnce",
        settings=SYNCED,
    ),
    _one(
        "a segment is synced before its successor",
        "log/segmented_log.py",
        "            self.sync(self._active.fd)\n",
        "            pass\n",
        "LogsKeep",
        "AppendedOnce",
        "NothingFails",
        "ComesToRest",
        settings=TORN,
    ),
    _one(
        "a log that failed is opened anew",
        "log/log_manager.py",
        'return state == "failed" or (',
        "return False or (",
        "ComesToRest",
        settings=("disk_trouble=20", "worn=0"),
    ),
    _one(
        "what could not be synced is not acknowledged",
        "log/buffer_calls.py",
        "if log in unsynced and isinstance(self._answers[at], Appended):",
        "if False:",
        "LogsKeep",
        "AppendedOnce",
        settings=SYNCED,
    ),
    _one(
        "what must be synced before it is acknowledged does not run at once",
        "log/write_turns.py",
        "        return all(log.limits.durability is not Durability.ALWAYS for log in logs)\n",
        "        return True\n",
        "LogsKeep",
        "AppendedOnce",
        settings=SYNCED,
    ),
    _one(
        "a turn of jobs that must be durable is synced before it is answered",
        "log/write_turns.py",
        "if log.limits.durability is Durability.ALWAYS]",
        "if False]",
        "LogsKeep",
        "AppendedOnce",
        settings=SYNCED,
    ),
    _one(
        "a job hears which of its logs could not be synced",
        "log/write_turns.py",
        "job.unsynced = {log: failed[log] for log in job.logs if log in failed}",
        "job.unsynced = {}",
        "LogsKeep",
        "AppendedOnce",
        settings=SYNCED,
    ),
    _one(
        "a turn that is over lets the next one come",
        "log/write_turns.py",
        "        self.busy = False\n        self.ran_now(turn.logs)",
        "        self.busy = bool(turn.sync_first)\n        self.ran_now(turn.logs)",
        "ComesToRest",
        settings=("durability=1", "worn=0"),
    ),
    _one(
        "a call that looked in vain may look again",
        "log/held_calls.py",
        "        self._rests = not due\n",
        "",
        "ComesToRest",
        "NothingFails",
        settings=("log_restart=10", "lost=0.1", "worn=0"),
    ),
    _one(
        "a log is held against another process",
        "log/log_opening.py",
        "    lock_fd = files.lock(folder / LOCK, lock_wait_ms)\n",
        "    lock_fd = files.open(folder / LOCK, create=True)\n",
        "AppendedOnce",
        "LogsKeep",
        "OffsetsOnce",
        settings=TWO_BUFFERS,
    ),
    _one(
        "what another process holds is tried again until it is free",
        "log/upkeep.py",
        "        return self._manager.due(monotonic_ms)\n",
        "        return []\n",
        "ComesToRest",
        settings=TWO_BUFFERS,
    ),
    _one(
        "who was replaced acknowledges nothing once its lease is over",
        "log/lease_term.py",
        "        return now_ms < self.until_ms\n",
        "        return self.until_ms > 0\n",
        "LogsKeep",
        "OffsetsOnce",
        settings=OLDER_BUFFERS,
    ),
    _one(
        "a start waits until the disk's trouble is over",
        "log/upkeep.py",
        "        if not passes(error):\n            raise error\n",
        "        raise error\n",
        "NothingFails",
        settings=("disk_trouble=20", "log_restart=20", "worn=0"),
    ),
    Mutation(
        "who takes a disk over knows what was written until the locks were free",
        (
            Change(
                "log/log_manager.py",
                "            if isinstance(self._broken.pop(place, None), LockHeld):\n"
                "                self._take_over()\n",
                "            self._broken.pop(place, None)\n",
            ),
        ),
        tests=(
            "tests/unit/test_buffer_calls.py::"
            "test_who_takes_a_disk_over_knows_what_was_written_until_the_locks_were_free",
        ),
    ),
    Mutation(
        "a log that is behind gives out no offset while its gap cannot be written",
        (
            Change(
                "log/partition_log.py",
                'self._waiting = self._waiting or f"it had come to {expected_end}"',
                "pass",
            ),
        ),
        tests=(
            "tests/unit/test_log_losses.py::"
            "test_a_log_that_is_behind_gives_out_no_offset_while_its_gap_cannot_be_written",
        ),
    ),
    # The simulator shows it too, once in some thousand runs: that is too rarely for a net.
    Mutation(
        "who was fenced while a file was read gets nothing of it",
        (
            Change(
                "log/buffer_calls.py",
                "return [_unless_fenced(part, fence, queue, group, positions) for part in found]",
                "return found",
            ),
        ),
        tests=(
            "tests/unit/test_buffer_calls.py::"
            "test_who_is_fenced_while_a_file_is_read_for_another_partition_gets_nothing",
        ),
    ),
    _one(
        "a frame of a former life is refused",
        "log/producer_fence.py",
        "            if number < known.number:\n",
        "            if number < 0:\n",
        "AppendedOnce",
        settings=LIVES,
    ),
    _one(
        "the life of a producer is on disk before it sends",
        "log/producer_fence.py",
        "self._files.replace(self._path, GENERATIONS.encode(list(known.values())), sync=True)",
        "pass",
        "AppendedOnce",
        settings=LIVES,
    ),
    _one(
        "an older life of a producer never begins again",
        "log/producer_fence.py",
        "if number == 0 or (known is not None and number <= known.number):",
        "if number == 0:",
        "AppendedOnce",
        settings=LIVES,
    ),
    _one(
        "a new epoch follows what its producer has in the log",
        "producer/sender.py",
        "pending.follows = mark(heard.epoch, heard.next_sequence) if heard else mark(NOBODY, 0)",
        "pending.follows = None",
        "AppendedOnce",
        settings=GIVEN_UP,
    ),
    _one(
        "the log asks whom a new epoch follows",
        "log/producer_state.py",
        "if header.follows is not None and header.follows != stands:",
        "if False:",
        "AppendedOnce",
        settings=GIVEN_UP,
    ),
    _one(
        "frames that are numbered anew are of a new epoch",
        "producer/sender.py",
        "        pending.epoch += 1\n",
        "",
        "AppendedOnce",
        "NothingFails",
        settings=GIVEN_UP,
    ),
    _one(
        "an older epoch of a producer is fenced",
        "log/producer_state.py",
        "if known is not None and header.producer_epoch < known.epoch:",
        "if False:",
        "AppendedOnce",
        "NothingFails",
        settings=GIVEN_UP,
    ),
)
