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
READING = "tests/actors/test_reading_in_process.py::"

WORKERS = (
    Mutation(
        "a worker that ends for another configuration begins again",
        (
            Change(
                "actors/consumer/worker_pool.py",
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
                "except BaseException as error:  # noqa: BLE001 - also what `sys.exit()` raises",
                "except Exception as error:",
            ),
        ),
        tests=(f"{RAISED}[in order-SystemExit]",),
    ),
    Mutation(
        "a worker that ended with a fault begins again",
        (
            Change(
                "actors/consumer/worker_pool.py",
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
                "self._gaps.room_for([i.offset for i in islice(self._waiting, most)], chars)",
                "min(most, len(self._waiting))",
            ),
        ),
        tests=("tests/unit/test_lives.py::test_a_gap_map_that_fills_its_row_never_outgrows_it",),
    ),
    Mutation(
        "a partition that cannot be read rests alone",
        (
            Change(
                "actors/consumer/fetcher.py",
                "except Exception as error:  # whatever it is, it is of one of them",
                "except AssertionError as error:",
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
                "actors/coordinator/consumer_supervisor.py",
                ".get(replica.member) is not replica or self._stopping:\n"
                "                return\n"
                "            for task",
                " is not None:\n                return\n            for task",
            ),
        ),
        tests=(f"{SUPERVISOR}[make-ValueError]",),
    ),
    Mutation(
        "a job's end is no other job's",
        (
            Change(
                "actors/buffer/log_writer.py",
                "except BaseException as error:  # noqa: BLE001 - it is the caller's, "
                "whatever it is",
                "except ZeroDivisionError as error:",
            ),
        ),
        tests=(f"{THREADS}test_a_writer_answers_every_job_and_goes_on[at once-ValueError]",),
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
                "            except BaseException:\n                self._stale = True\n",
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
