"""Guards of a replica's log: what a cut must take back, and what must be left so that it can."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_REPLICA, _CUT, _OPENING = "log/replica_log.py", "log/log_cut.py", "log/log_opening.py"
_TESTS, _CUTS = "tests/unit/test_replica_log.py::test_", "tests/unit/test_cutting_logs.py::test_"
_AS_IF_NEVER = f"{_CUTS}a_log_that_was_cut_is_as_if_the_rest_had_never_been"
_ENDED = f"{_CUTS}whatever_ends_a_cut_in_its_middle_it_is_done_or_was_never_begun"
_BEGIN, _BEGINNINGS = "log/log_begin.py", "tests/unit/test_beginning_logs.py::test_"
_APPENDS = "tests/unit/test_replica_appends.py::test_"
_HAS_ALL = f"{_BEGINNINGS}who_begins_anew_has_all_and_knows_all_that_the_leader_does"
_WHOLE = f"{_BEGINNINGS}whatever_ends_a_beginning_in_its_middle_it_is_done_or_was_never_begun"
_TAKES_BACK = f"{_TESTS}a_cut_takes_back_messages_epochs_gaps_and_what_is_known_of_producers"


def _one(guard: str, file: str, text: str, instead: str, test: str) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), tests=(test,))


REPLICA_LOGS = (
    _one(
        "a cut is written down before it begins",
        _CUT,
        "    files.replace(folder / CUT, CUT_NOTE.encode(offset), sync=True)",
        "    files.replace(folder / CUT, CUT_NOTE.encode(offset), sync=False)",
        f"{_ENDED}[power]",
    ),
    _one(
        "a cut that was begun is finished when the log is opened",
        _OPENING,
        "reserve.with_room(lambda: finish_cut(files, folder, lock_fd)) is not None:",
        "False:",
        f"{_ENDED}[kill]",
    ),
    _one(
        "a cut log is not known to have come further",
        _CUT,
        "min(manifest.known_end, offset)",
        "manifest.known_end",
        _TAKES_BACK,
    ),
    _one(
        "of a cut log no older note says that more of it is synced",
        _CUT,
        "NOTE.encode(min(offset, read_note(files, lock_fd)))",
        "NOTE.encode(read_note(files, lock_fd))",
        _TAKES_BACK,
    ),
    _one(
        "the note of what is synced is lowered for sure",
        _CUT,
        "    files.sync(lock_fd)\n",
        "",
        _AS_IF_NEVER,
    ),
    _one(
        "a snapshot of what was cut is not believed again",
        _CUT,
        "    _roll_back_producers(files, folder, offset)\n",
        "",
        f"{_TESTS}a_snapshot_of_what_was_cut_is_not_believed_once_the_log_is_as_long_again",
    ),
    _one(
        "an index of what was cut is not believed again",
        _CUT,
        "        files.unlink(path.with_suffix(INDEX_SUFFIX))\n",
        "",
        f"{_TESTS}an_index_of_what_was_cut_is_not_believed",
    ),
    _one(
        "what is known of producers is kept from where nothing is cut",
        _REPLICA,
        "            self._keep_floor()\n",
        "            pass\n",
        _AS_IF_NEVER,
    ),
    _one(
        "no lower floor is left when frames go that it would need",
        _REPLICA,
        "        try:\n            self._raise_floor()",
        "        try:\n            pass",
        _AS_IF_NEVER,
    ),
    _one(
        "frames stay that a cut would need to roll producers back",
        _REPLICA,
        "return min(stays, self._end if self._end <= self._settled else known)",
        "return min(stays, self._end)",
        _AS_IF_NEVER,
    ),
    _one(
        "a segment stays that tells the epoch of what cannot be cut",
        _REPLICA,
        "return min(stays, self._end if",
        "return min(self._end, self._end if",
        _AS_IF_NEVER,
    ),
    _one(
        "a torn tail is cut once more, for the sync of the first time may have failed",
        "log/segmented_log.py",
        "                self._files.end_at(fd, self.segments[-1].size)\n",
        "                pass\n",
        f"{_CUTS}a_torn_tail_stays_cut_though_the_first_sync_of_that_failed",
    ),
    _one(
        "a sync vouches for the files that it was made of",
        "log/partition_log.py",
        "if end > self._durable and disk is self._disk and",
        "if end > self._durable and",
        f"{_TESTS}a_sync_that_began_before_a_cut_vouches_for_nothing_after_it",
    ),
    _one(
        "nothing is cut that readers may have seen",
        _REPLICA,
        "        if offset < self._high_watermark:\n",
        "        if False:\n",
        _TAKES_BACK,
    ),
    _one(
        "readers of a replica see what is below its high watermark",
        _REPLICA,
        "        return min(self._high_watermark, end)",
        "        return end",
        f"{_TESTS}readers_see_what_is_below_the_high_watermark_and_followers_all",
    ),
    _one(
        "a follower takes frames at its own end",
        _REPLICA,
        "        if first != self._end:\n",
        "        if False:\n",
        f"{_TESTS}frames_are_taken_at_the_end_and_whole_or_not_at_all",
    ),
    _one(
        "a follower checks the frames that it takes",
        _REPLICA,
        "        check_body(header, frame[HEADER_BYTES:])\n",
        "",
        f"{_TESTS}frames_are_taken_at_the_end_and_whole_or_not_at_all",
    ),
    _one(
        "what is before a gap is synced before the gap is written down",
        _REPLICA,
        "        self.sync()\n        told =",
        "        told =",
        f"{_CUTS}what_is_before_a_gap_outlives_a_power_cut_wherever_that_is",
    ),
    _one(
        "no two processes of a replica have one number",
        "log/disk_life.py",
        "files.replace(folder / NAME, data, sync=True)",
        "files.replace(folder / NAME, data, sync=False)",
        "tests/unit/test_disk_life.py::"
        "test_no_two_lives_have_one_number_whatever_ends_them_and_whenever",
    ),
    _one(
        "of two processes of a replica at once one has a number",
        "log/disk_life.py",
        "self._lock_fd = files.lock(folder / LOCK, lock_wait_ms)",
        "self._lock_fd = files.create(folder / LOCK)",
        "tests/unit/test_disk_life.py::test_while_one_lives_there_is_no_second",
    ),
    _one(
        "an append is acknowledged once it is on every replica in sync",
        "log/buffer_calls.py",
        "                if _is_copied(answer, self.logs[at]):\n",
        "                if True:\n",
        f"{_APPENDS}it_is_acknowledged_once_it_is_on_every_replica_in_sync",
    ),
    _one(
        "an append is acknowledged once all of it is on every replica in sync",
        "log/buffer_calls.py",
        "answer.base_offset + answer.count <= log.copied_end",
        "answer.base_offset < log.copied_end",
        f"{_APPENDS}it_is_acknowledged_once_it_is_on_every_replica_in_sync",
    ),
    _one(
        "a new beginning is written down before anything is dropped",
        _BEGIN,
        "    files.replace(folder / BEGIN, data, sync=True)",
        "    files.replace(folder / BEGIN, data, sync=False)",
        f"{_WHOLE}[power]",
    ),
    _one(
        "a new beginning that was noted is finished when the log is opened",
        _OPENING,
        "begun = reserve.with_room(lambda: finish_beginning(files, folder, lock_fd))",
        "begun = False",
        f"{_WHOLE}[kill]",
    ),
    _one(
        "a log that began anew is known to have come as far as that",
        _BEGIN,
        'return replace(manifest, start_offset=at, known_end=at, gaps=[], stopped="")',
        'return replace(manifest, gaps=[], stopped="")',
        f"{_WHOLE}[kill]",
    ),
    _one(
        "frames tell nothing new of producers up to the snapshot that came with the beginning",
        _REPLICA,
        "is_known=header.end_offset <= known_to)",
        "is_known=False)",
        _HAS_ALL,
    ),
    _one(
        "what a log began with outlives its process",
        _OPENING,
        ", (BEGUN, sys.maxsize)):",
        "):",
        _HAS_ALL,
    ),
    _one(
        "no snapshot is written of less than what the log began with",
        _REPLICA,
        "        if self._end < self._covered:\n",
        "        if False:\n",
        f"{_BEGINNINGS}what_it_began_with_is_no_snapshot_of_less_than_that",
    ),
    _one(
        "who begins anew hears nothing of producers that may be cut",
        _REPLICA,
        "        if self._covered > self._settled and self._floor:\n"
        "            return self._files.read_file(self.folder / FLOOR)\n"
        "        if self._covered > self._settled or not self._covered:\n",
        "        if not self._covered:\n",
        f"{_BEGINNINGS}an_old_snapshot_is_good_enough_where_what_is_newer_may_be_cut",
    ),
    _one(
        "a segment that a power cut brings back is not followed",
        _OPENING,
        "disk.drop(holes[-1] if holes else 0)",
        "disk.drop(0)",
        f"{_BEGINNINGS}a_segment_that_a_power_cut_brings_back_is_not_followed",
    ),
    _one(
        "nothing is dropped above the high watermark",
        _REPLICA,
        "        if offset > self._high_watermark:\n            raise OffsetOutOfRange(",
        "        if False:\n            raise OffsetOutOfRange(",
        f"{_BEGINNINGS}nothing_is_dropped_above_the_high_watermark",
    ),
    _one(
        "a follower drops only what is safe with it as well",
        _REPLICA,
        "start = min(start, self._high_watermark, self._end)",
        "start = min(start, self._end)",
        f"{_BEGINNINGS}nothing_is_dropped_above_the_high_watermark",
    ),
)
