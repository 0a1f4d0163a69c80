"""Guards of files, producers, lanes, sinks and stores; the tests of each notice what is gone."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation
from tests.simulation.mutations.files import FILES


def _unit(guard: str, file: str, text: str, instead: str, *tests: str) -> Mutation:
    """A guard in one place, that these files of tests/unit (or ids in them) notice."""
    return Mutation(
        guard,
        (Change(file, text, instead),),
        tests=tuple(f"tests/{test}" if "/" in test else f"tests/unit/{test}" for test in tests),
    )


_LOG = "test_partition_log.py::"
_SENDER = "test_sender.py::"

LOG = (
    _unit(
        "a snapshot of a log that reached further is not believed",
        "log/producer_state.py",
        "if found.end_offset > log_end:",
        "if False:",
        "test_guards_once_missed.py",
    ),
    _unit(
        "offsets rise from frame to frame",
        "log/scan.py",
        "if header.base_offset < offset:",
        "if False:",
        "test_guards_once_missed.py",
    ),
    _unit(
        "a repeat with other content is refused",
        "log/producer_state.py",
        "if (answer.messages, answer.body_checksum) != (",
        "if (header.messages, header.body_checksum) != (",
        f"{_LOG}test_a_repeat_gets_the_first_answer_and_a_gap_is_refused",
    ),
    _unit(
        "a sequence that skips ahead is refused",
        "log/producer_state.py",
        "if header.sequence > expected:",
        "if False:",
        f"{_LOG}test_a_repeat_gets_the_first_answer_and_a_gap_is_refused",
    ),
    _unit(
        "retention keeps what a group has not passed",
        "log/retention.py",
        "may_go = passed is None or all_passed or limits.drop_unread",
        "may_go = True",
        "test_log_retention.py",
    ),
    _unit(
        "truncation keeps what a group has not passed",
        "log/retained.py",
        "if needing and not force:",
        "if False:",
        f"{_LOG}test_truncation_is_refused_while_a_group_needs_the_data",
    ),
    _unit(
        "a frame that can never fit is refused",
        "log/partition_log.py",
        "if header.frame_bytes > largest:",
        "if False:",
        f"{_LOG}test_a_frame_that_can_never_fit_is_refused",
    ),
    _unit(
        "readers see only what is synced, where that is promised",
        "log/log_view.py",
        "return self._durable if self.limits.durability is Durability.ALWAYS else self._end",
        "return self._end",
        f"{_LOG}test_with_always_readers_see_only_what_is_synced",
    ),
    _unit(
        "the frame's body is checked",
        "data/frame.py",
        "if xxh3_64_intdigest(body) != header.body_checksum:",
        "if False:",
        "test_log_frame.py",
    ),
    _unit(
        "the frame's header is checked",
        "data/frame.py",
        "if checksum != xxh3_64_intdigest(memoryview(data)[position : position + _FIELDS.size]):",
        "if False:",
        "test_log_frame.py",
    ),
    _unit(
        "a memory log gives no offset out twice",
        "log/partition_log.py",
        "self._change(known_end=header.end_offset + RESERVE_OFFSETS)",
        "pass",
        "test_log_losses.py",
    ),
    _unit(
        "one process has a log at a time",
        "files.py",
        "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        f"{_LOG}test_two_processes_cannot_have_one_log",
    ),
    _unit(
        "a reader's fence never falls",
        "log/read_fence.py",
        "self._raise({p: e for p, e in places.items() if e > self._epochs.get(p, -1)})",
        "self._raise(places)",
        "test_read_fence.py",
    ),
)

PRODUCERS = (
    _unit(
        "no more calls are under way than allowed",
        "producer/sender.py",
        "while len(under_way) < self._limits.inflight_appends_max:",
        "while True:",
        f"{_SENDER}test_no_more_is_under_way_than_allowed",
    ),
    _unit(
        "no more of a partition is under way than its log remembers",
        "producer/sender.py",
        "max(0, self._limits.partition_frames_max - flying)",
        "1_000_000",
        f"{_SENDER}test_no_more_of_a_partition_is_under_way_than_its_log_remembers",
    ),
    _unit(
        "an append that failed is made again",
        "producer/sender.py",
        "            frame.flying = False\n        return True",
        "            pass\n        return True",
        "test_sender.py",
    ),
    _unit(
        "an unknown outcome is told as such",
        "producer/sender.py",
        "if isinstance(refusal, _WAITED_FOR) and not frame.flying:",
        "if refusal is not None:",
        "test_sender.py",
        "test_sender_giving_up.py",
    ),
    _unit(
        "a full partition holds up only itself",
        "producer/sender.py",
        "if pending.frames and not pending.hole and not pending.wait_until_ms:",
        "if pending.frames and not pending.hole and not any(\n"
        "                one.wait_until_ms for one in self._pending.values()\n"
        "            ):",
        "test_sender.py",
    ),
    _unit(
        "columns go behind what was given before",
        "producer/accumulator.py",
        '        """Send columns, behind everything that was given before."""\n'
        "        self.close_open(now_ms)",
        '        """Send columns, behind everything that was given before."""',
        "test_producer.py",
    ),
)

WORK = (
    _unit(
        "one message of a key at a time",
        "processing/key_ordered.py",
        "            self._pending[item.offset] = lane\n            return\n",
        "            self._pending[item.offset] = lane\n",
        "test_guards_once_missed.py",
    ),
    _unit(
        "what is done already is not offered again",
        "processing/key_ordered.py",
        "if offset in self._map.done:",
        "if False:",
        "test_processing_lanes.py",
    ),
    _unit(
        "a handler that timed out is not listened to",
        "processing/key_ordered.py",
        "        if task.over:\n            return",
        "        if task.over:\n            pass",
        "test_processing_lanes.py",
    ),
    _unit(
        "a message waits in line behind its key's failed one",
        "processing/key_ordered.py",
        "if item.key in self.parked:",
        "if False:",
        "test_processing_lanes.py",
    ),
    _unit(
        "attempts are carried on by the next owner",
        "processing/key_ordered.py",
        "item.attempts = self._map.failing.get(offset, 0)",
        "item.attempts = 0",
        "test_processing_lanes.py",
    ),
    _unit(
        "the gap map stays within its row",
        "processing/key_ordered.py",
        "if spare < 0:\n                lowest",
        "if False:\n                lowest",
        "test_processing_lanes.py",
        "test_lives.py",
    ),
    _unit(
        "looking ahead has a bound",
        "processing/key_ordered.py",
        "len(self._pending) < self._rules.lookahead_records",
        "True",
        "test_processing_lanes.py",
    ),
    _unit(
        "a moved tenant's own queue is read when the shared one is passed",
        "tenants/migration.py",
        "shared_passed.get(partition, 0) >= end for partition, end in self.barrier.items()",
        "True for partition, end in self.barrier.items()",
        "test_tenants.py",
    ),
    _unit(
        "every producer of a moving tenant is waited for",
        "tenants/migration.py",
        "if self.phase is Phase.LEAVING and self.all_switched:",
        "if self.phase is Phase.LEAVING:",
        "test_tenants.py",
    ),
)

STORES = (
    _unit(
        "a store that lost accepted writes is found out",
        "group/write_queue.py",
        "if not _is_stored(record, snapshot, members):",
        "if False:",
        "test_write_queue.py",
    ),
)

_CALLS = "faults/test_calls.py::"

SHELL = (
    _unit(
        "a fetch is not waited for without end",
        "actors/consumer/fetcher.py",
        "asyncio.timeout(max(0.0, left_s))",
        "asyncio.timeout(None)",
        f"{_CALLS}test_it_goes_on_when[commit-buffer.fetch-delayed]",
    ),
    _unit(
        "begun twice is begun once",
        "consumer/consumer_life.py",
        "if self.has_begun or self.is_over:",
        "if self.is_over:",
        f"{_CALLS}test_it_goes_on_when[hand_over-consumer.begin-doubled]",
    ),
    _unit(
        "a tenant's own queue is read until nothing is left there",
        "tenants/tenant_moves.py",
        "if move.isolated_is_read:",
        "if move.phase is Phase.ISOLATED:",
        f"{_CALLS}test_it_goes_on_when[tenant_move-coordinator.StartGroup-caller killed before]",
    ),
)

DATA = (*LOG, *PRODUCERS, *WORK, *STORES, *SHELL, *FILES)
