"""Guards of workers and loops: nothing ends silently, and nobody skips what he inherits."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

ENDS = "tests/actors/test_nothing_ends_silently.py::"
RAISED = f"{ENDS}test_what_a_handler_raises_is_a_failed_attempt_of_its_message"
ASSIGNED = f"{ENDS}test_an_on_assigned_that_raises_holds_up_its_partition_until_it_does_not"
SUPERVISION = "tests/actors/test_supervision.py::"
SUPERVISOR = (
    "tests/actors/test_supervisor_in_process.py::test_who_died_is_replaced_whatever_that_meets"
)
THREADS = "tests/actors/test_every_thread.py::"
WRITER = "tests/unit/test_log_writer.py::"
READING = "tests/actors/test_reading_in_process.py::"
CALLERS = "tests/actors/test_callers.py::"

WORKERS = (
    Mutation(
        "a long call among short ones does not hold up the others",
        (
            Change(
                "actors/consumer/parallel_worker.py",
                "                self._callers.engage()\n",
                "                pass\n",
            ),
        ),
        tests=(f"{CALLERS}test_a_long_call_among_short_ones_holds_up_its_key_only",),
    ),
    Mutation(
        "who gives up what is left to others has them watched",
        (
            Change(
                "actors/consumer/callers.py",
                "if turns.todo or self._stopping.is_set():",
                "if self._stopping.is_set():",
            ),
        ),
        tests=(f"{CALLERS}test_who_gives_up_what_is_left_to_others_has_them_watched",),
    ),
    Mutation(
        "a call's time begins when it does",
        (
            Change(
                "processing/call_turns.py",
                "                task.due_ms = None\n",
                "                pass\n",
            ),
        ),
        tests=(f"{CALLERS}test_a_call_has_its_whole_time_however_long_it_waited_to_begin",),
    ),
    Mutation(
        "nothing that was taken begins beyond the lease",
        (
            Change(
                "actors/consumer/callers.py",
                "if plain and at_s <= lease.begin_until_s and not",
                "if plain and not",
            ),
        ),
        tests=(f"{CALLERS}test_nothing_begins_beyond_the_lease_and_all_goes_on_under_the_next",),
    ),
    Mutation(
        "nothing that was taken is awaited beyond the lease",
        (
            Change(
                "actors/consumer/callers.py",
                "if at_s > self._lease.begin_until_s or self._stopping",
                "if self._stopping",
            ),
        ),
        tests=(f"{CALLERS}test_nothing_begins_beyond_the_lease_and_all_goes_on_under_the_next",),
    ),
    Mutation(
        "a fault in a caller's turn ends its worker",
        (Change("actors/consumer/callers.py", "        self._work.fail(error)\n", ""),),
        tests=(f"{CALLERS}test_a_fault_of_ours_in_a_turn_ends_the_worker_and_says_so",),
    ),
    Mutation(
        "a worker that ends for another configuration begins again",
        (
            Change(
                "consumer/worker_roster.py",
                "        if newest and not worker.told_to_stop:\n",
                "        if False:\n",
            ),
        ),
        tests=("tests/actors/test_workers_renewed.py",),
    ),
    Mutation(
        "a worker that is renewed is not told that its partition goes",
        (
            Change(
                "actors/consumer/worker_pool.py",
                "                worker.renew()\n",
                "                worker.stop()\n",
            ),
        ),
        tests=("tests/actors/test_workers_renewed.py",),
    ),
    Mutation(
        "sys.exit() in a handler fails its message, in order",
        (
            Change(
                "actors/consumer/sequential_worker.py",
                "except BaseException as raised:  # noqa: BLE001 - `sys.exit()` raises one too",
                "except Exception as raised:",
            ),
        ),
        tests=(f"{RAISED}[in order-SystemExit]",),
    ),
    Mutation(
        "a worker reads in the record what it has in hand, and nobody else",
        (
            Change(
                "actors/consumer/sequential_worker.py",
                "            self._entry_read = None\n",
                "",
            ),
        ),
        tests=(
            "tests/actors/test_message_path.py::"
            "test_progress_never_comes_from_a_slot_that_is_another_partitions_by_now",
        ),
    ),
    Mutation(
        "a worker that ended with a fault begins again",
        (
            Change(
                "consumer/worker_roster.py",
                "if newest and worker.fault is not None and not worker.told_to_stop:",
                "if False:",
            ),
        ),
        tests=(f"{ASSIGNED}[in order-ValueError]",),
    ),
    Mutation(
        "what a gap map says is done is passed without being fetched",
        (
            Change(
                "consumer/session.py",
                "most = max(held.fetched, held.done_to)",
                "most = held.fetched",
            ),
        ),
        seen_by=("NothingFails",),
        settings=("lanes=4", "consumer_crash=10"),
    ),
    Mutation(
        "a pack leaves room for a gap map that it inherits",
        (
            Change(
                "processing/packs.py",
                "self._noted().room_for([i.offset for i in islice(self._waiting, most)], chars)",
                "min(most, len(self._waiting))",
            ),
        ),
        tests=("tests/unit/test_lives.py::test_a_gap_map_that_fills_its_row_never_outgrows_it",),
    ),
    Mutation(
        "a partition that cannot be read rests alone",
        (
            Change(
                "consumer/fetch_plan.py",
                "alone = sorted(fetch.positions, reverse=True)",
                "alone = []",
            ),
        ),
        tests=(f"{READING}test_a_partition_that_cannot_be_read_holds_up_itself_alone_and_heals",),
    ),
    Mutation(
        "a CancelledError that nobody asked for is a fault",
        (
            Change(
                "supervision/supervisor.py",
                "return task is None or task.cancelling() > 0",
                "return True",
            ),
        ),
        tests=(f"{SUPERVISION}test_a_loop_begins_again_and_is_shown",),
    ),
    Mutation(
        "a StopIteration off the loop reaches who awaits it",
        (
            Change(
                "supervision/supervisor.py",
                "if isinstance(error, Exception) and not isinstance(error, StopIteration):",
                "if isinstance(error, Exception):",
            ),
        ),
        tests=(f"{SUPERVISION}test_what_runs_off_the_loop_is_raised_to_who_awaits_it",),
    ),
    Mutation(
        "a thread of a pool survives what a call raises",
        (
            Change(
                "actors/cluster/thread_pool.py",
                "except BaseException as error:  # noqa: BLE001 - it ends neither "
                "thread nor worker",
                "except Exception as error:",
            ),
        ),
        tests=(f"{SUPERVISION}test_a_pool_loses_no_thread_to_a_call",),
    ),
    Mutation(
        "a consumer that is wanted is not left to itself",
        (
            Change(
                "group/replica_lives.py",
                "        if not self.is_wanted(life) or self.stopping:\n            return\n",
                "        if self.is_wanted(life):\n            return\n",
            ),
        ),
        tests=(f"{SUPERVISOR}[make-ValueError]",),
    ),
    Mutation(
        "a job's end is no other job's",
        (
            Change(
                "log/write_turns.py",
                "except BaseException as error:  # noqa: BLE001 - it is the caller's, "
                "whatever it is",
                "except ZeroDivisionError as error:",
            ),
        ),
        tests=(f"{THREADS}test_a_writer_answers_every_job_and_goes_on[at once-ValueError]",),
    ),
    Mutation(
        "a fetch that waits ends when its channel is woken",
        (
            Change(
                "actors/consumer/channel_wake.py", "            self.ends()\n", "            pass\n"
            ),
        ),
        tests=("tests/unit/test_fetcher.py",),
    ),
    Mutation(
        "a job that runs at once overtakes none that was given before",
        (
            Change(
                "log/write_turns.py",
                "if (self._jobs or self._under_way is not None) and not self._passes(logs):",
                "if False:",
            ),
        ),
        tests=(f"{WRITER}test_what_runs_at_once_overtakes_nothing_that_was_given_before",),
    ),
    Mutation(
        "what ran at once is synced too",
        (
            Change(
                "actors/buffer/log_writer.py",
                "            self._turns.ran_now(logs)\n            self._sync_soon()\n",
                "            pass\n",
            ),
        ),
        tests=(f"{WRITER}test_little_runs_at_once_and_is_synced_later",),
    ),
    Mutation(
        "a change during a look at files is looked at after it",
        (
            Change(
                "log/held_calls.py",
                "due = bool(self._changed) or (self.over and not final)",
                "due = self.over and not final",
            ),
        ),
        tests=(
            "tests/unit/test_held_call.py::"
            "test_what_changes_during_a_look_that_takes_long_is_looked_at_after_it",
        ),
    ),
    Mutation(
        "a pulse is answered again when there are descriptors",
        (
            Change(
                "actors/cluster/watchdog.py",
                "                if self._closed:\n",
                "                if True:\n",
            ),
        ),
        tests=(f"{THREADS}test_a_pulse_is_answered_again_when_there_are_descriptors",),
    ),
    Mutation(
        "how long calls last is noted whatever failed before",
        (
            Change(
                "actors/consumer/consumer_actor.py",
                'keep("looking", self._look)',
                'once("looking", self._look())',
            ),
        ),
        tests=(f"{THREADS}test_what_a_consumer_does_beside_its_work_goes_on[ValueError]",),
    ),
    Mutation(
        "replicas that could not be kept are kept later",
        (
            Change(
                "actors/coordinator/consumer_replicas.py",
                "            except BaseException:\n                self._unkept.failed()\n",
                "            except BaseException:\n",
            ),
        ),
        tests=(f"{THREADS}test_replicas_that_could_not_be_kept_are_kept_later[ValueError]",),
    ),
    Mutation(
        "a frame's columns stay inside of it",
        (
            Change(
                "data/frame.py",
                "            (column if raw is None else column.view(raw)).validate(full=True)\n",
                "            assert column.type is not raw\n",
            ),
        ),
        tests=("tests/fuzz/test_doors.py::test_rubbish_that_crashes_is_refused",),
    ),
)
