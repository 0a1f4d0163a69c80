"""Guards of what lies on disk: against what a crash, a failed sync or a full disk leaves there."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_BOUNDED = "test_bounded_files.py::test_"


def _noticed(guard: str, by: str, *changes: Change, note: str = "") -> Mutation:
    return Mutation(guard, changes, note=note, tests=(f"tests/unit/{by}",))


FILES = (
    _noticed(
        "limits that come back from a file are what code compares",
        "test_log_library.py::test_limits_made_of_words_are_what_code_compares",
        Change(
            "data/log_limits.py",
            "object.__setattr__(self, name, kind(getattr(self, name)))",
            "kind(getattr(self, name))",
        ),
    ),
    _noticed(
        "a sync that failed once fails for ever",
        "test_log_mends.py::test_what_a_failed_sync_left_in_memory_alone_is_written_again",
        Change("log/segmented_log.py", "self._sync_error = error\n", "pass\n"),
        Change("log/retained.py", "self._failed = self._failure(what, error)\n", "pass\n"),
        Change("log/retained.py", "raise self._failed", "raise self._failure(what, error)"),
        note="the log's own failure stands before it: both are gone",
    ),
    _noticed(
        "what memory gave back to a log is synced at once",
        "test_log_mends.py::test_what_memory_gave_back_survives_a_power_cut_without_another_append",
        Change(
            "log/log_manager.py",
            "                log.sync()  # it was acknowledged",
            "                #",
        ),
    ),
    _noticed(
        "what no sync vouches for is written again",
        "test_log_mends.py::test_what_a_failed_sync_left_in_memory_alone_is_written_again",
        Change(
            "log/log_opening.py",
            "_begin(disk, reserve, end, None if sure else noted, now_ms)",
            "_begin(disk, reserve, end, None, now_ms)",
        ),
    ),
    _noticed(
        "a log that failed is given back what memory held",
        "test_log_mends.py::test_a_log_that_failed_is_given_back_what_memory_held_of_it",
        Change("log/log_manager.py", "log.restore(owed.runs, now_ms)", "pass"),
    ),
    _noticed(
        "a reserve makes room for what retention must write",
        "test_log_mends.py::test_a_disk_that_is_full_to_the_last_byte_gets_room_by_retention",
        Change("log/disk_reserve.py", "self._files.unlink(self._path)", "pass"),
    ),
    _noticed(
        "a log waits until its confirmation is on disk",
        "test_log_mends.py::test_a_confirmation_that_meets_a_full_disk_leaves_the_log_waiting",
        Change(
            "log/partition_log.py",
            "            self._lose_to(expected_end, now_ms)",
            '            self._waiting = ""\n            self._lose_to(expected_end, now_ms)',
        ),
    ),
    _noticed(
        "what dropped frames knew is synced before they go",
        "test_log_mends.py::test_what_dropped_frames_knew_outlives_a_power_cut",
        Change(
            "log/retained.py",
            "self._files.replace(self.folder / SNAPSHOT, data, sync=True)",
            "self._files.replace(self.folder / SNAPSHOT, data, sync=False)",
        ),
    ),
    _noticed(
        "after a power cut an unsynced tail is torn whatever follows",
        "test_log_mends.py::test_pages_that_a_power_cut_left_in_any_order_are_a_torn_tail",
        Change("log/recovery.py", "torn = not later and synced.power_cut", "torn = False"),
    ),
    _noticed(
        "what a frame's payloads hold is no frame of the log",
        "test_log_mends.py::test_a_payload_that_holds_a_frame_cannot_stop_a_log",
        Change("log/scan.py", "begin = unpack_header(data).frame_bytes", "begin = 1"),
    ),
    _noticed(
        "a clock that leaps makes no producer silent",
        "test_log_mends.py::test_the_mended_clock_of_a_machine_makes_no_producer_silent",
        Change(
            "log/producer_state.py",
            "min(max(0, now_ms - self._ticked_ms), STEP_MS_MAX)",
            "max(0, now_ms - self._ticked_ms)",
        ),
    ),
    _noticed(
        "one partition that cannot be read is refused alone",
        "test_log_mends.py::test_one_partition_that_cannot_be_read_is_refused_alone",
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
        note="the log makes a LogAway of it, and the reader would of anything: both are gone",
    ),
    _noticed(
        "what could not be synced stays dirty",
        "test_log_mends.py::test_a_sync_that_cannot_begin_leaves_nobody_waiting_and_nothing_forgotten",
        Change(
            "log/write_turns.py",
            'if log.dirty and log.state != "failed":',
            "if False:",
        ),
    ),
    _noticed(
        "a small job passes none that waits for a turn and is about its log",
        "test_log_writer.py::test_little_passes_much_of_other_logs_and_nothing_of_its_own",
        Change("log/write_turns.py", " or not self._named.isdisjoint(its):", ":"),
    ),
    _noticed(
        "jobs of logs that have something in common run one after the other",
        "test_log_writer.py::test_where_logs_have_something_in_common_nothing_passes",
        Change("log/write_turns.py", "if not (self._apart and its)", "if not its"),
    ),
    _noticed(
        "what was written is synced before its file is closed to make room",
        f"{_BOUNDED}what_was_written_is_synced_before_its_file_is_closed",
        Change(
            "bounded_files.py",
            "                    self._inner.sync(held.fd)\n",
            "                    pass\n",
        ),
    ),
    _noticed(
        "a file's owner hears of the sync that failed when the file was closed",
        f"{_BOUNDED}a_sync_that_failed_when_a_file_was_closed_is_told_to_its_owner",
        Change(
            "bounded_files.py",
            "                    held.error = error\n",
            "                    pass\n",
        ),
    ),
    _noticed(
        "one thread at a time syncs a file",
        f"{_BOUNDED}an_owner_that_syncs_while_a_file_is_closed_hears_what_failed",
        Change("bounded_files.py", "as real, held.syncing:", "as real:"),
    ),
    _noticed(
        "another file in the place of ours is not written to",
        f"{_BOUNDED}another_file_in_the_place_of_ours_is_not_taken_for_it",
        Change("bounded_files.py", "self._inner.identity(fd) != held.inode", "False"),
    ),
    _noticed(
        "a lock whose file is closed is held all the same",
        f"{_BOUNDED}a_lock_outlasts_the_closing_of_its_file",
        Change(
            "files.py",
            "            fcntl.fcntl(fd, _SET_LOCK, _FLOCK.pack(fcntl.F_WRLCK",
            "            (fd, _SET_LOCK, _FLOCK.pack(fcntl.F_WRLCK",
        ),
    ),
)
