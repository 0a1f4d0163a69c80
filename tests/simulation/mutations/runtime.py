"""Guards of a group's runtime: durable before told, calls of the store, faults and reloads."""

from __future__ import annotations

from tests.simulation.mutations.base import LATE_STORE, OUTAGES, TWO_LEADERS, Change, Mutation

FAULTS = "tests/actors/test_group_faults.py"
_HOST = "tests/actors/test_group_host.py::"
_HEALS = f"{FAULTS}::test_one_fault_fails_one_group_which_heals"
_UNIT = "tests/unit/test_group_runtime.py::"
_CUT = "tests/actors/test_lease_in_process.py::"
_RUNTIME = "group/group_runtime.py"
_WRITER = "group/record_writer.py"
_WAITING = "group/waiting_requests.py"
_OFTEN_BROKEN = ("group_fault=30", "consumer_crash=5")

RUNTIME = (
    # --- durable before told --------------------------------------------------------------------
    Mutation(
        "a reply waits until what it rests on is durable",
        (Change(_RUNTIME, "if self.queue.durable >= after:\n", "if True:\n"),),
        ("DurableReplies", "RefusalsHold"),
        LATE_STORE,
    ),
    Mutation(
        "a refusal waits until what it rests on is durable",
        (
            Change(
                _RUNTIME,
                "self._after(refusal_after(refused, self.core.records_emitted), call, None)",
                "self._after(0, call, None)",
            ),
        ),
        ("RefusalsHold",),
        OUTAGES,
    ),
    Mutation(
        "effects wait until what they rest on is durable",
        (Change(_RUNTIME, "if self.queue.durable >= decision.after:", "if True:"),),
        ("DurableReplies", "OneOwner", "RefusalsHold", "ComesToRest"),
        ("store_outage=15", "network_trouble=0", "consumer_crash=10"),
    ),
    # --- calls of the store ---------------------------------------------------------------------
    Mutation(
        "a batch is repeated until its outcome is known",
        (
            Change(
                _WRITER,
                "self.again_ms = now.monotonic_ms + int(self._backoff.failed() * 1_000)",
                "self._durable(call.batch)  # type: ignore[union-attr]",
            ),
        ),
        ("ComesToRest", "DurableReplies", "NothingFails", "OneOwner"),
        OUTAGES,
    ),
    Mutation(
        "a batch that is refused is judged by what the store holds",
        (
            Change(
                _WRITER,
                "if any(outcome is not Outcome.APPLIED for outcome in answer):",
                "if False:",
            ),
        ),
        ("DurableReplies", "OneOwner", "ComesToRest"),
        TWO_LEADERS,
    ),
    Mutation(
        "an answer to a former call is no answer to this one",
        (Change(_WRITER, "return call is self._calling", "return self._calling is not None"),),
        ("DurableReplies", "NothingFails", "ComesToRest"),
        (
            "group_fault=60",
            "fault_interval_ms=60",
            "write_latency_ms=120",
            "write_records_max=1",
            "commit_interval_ms=5",
            "commit_mode=0",  # one write a message is too slow for it
        ),
    ),
    Mutation(
        "one call of the store is under way at a time",
        (Change(_WRITER, "        if self._calling is not None:\n            return None\n", ""),),
        ("NothingFails", "DurableReplies", "ComesToRest"),
        ("write_records_max=1", "write_latency_ms=40"),
    ),
    Mutation(
        "a refused renewal is looked into",
        (Change("group/lease_renewals.py", "elif Outcome.FENCED in answer:", "elif False:"),),
        tests=(f"{_UNIT}test_a_renewal_that_is_refused_finds_the_newer_coordinator",),
    ),
    Mutation(
        "time does not count while a group's records wait",
        (Change("group/ticks.py", "return waits or", "return False and"),),
        ("OutageMovesNobody",),
        OUTAGES,
    ),
    # --- faults and reloads ---------------------------------------------------------------------
    Mutation(
        "a deposed coordinator ends",
        (
            Change(
                "group/group_health.py",
                "if isinstance(error, (CoordinatorDeposed, *LASTING)):",
                "if isinstance(error, LASTING):",
            ),
        ),
        tests=(f"{_HOST}test_a_newer_coordinator_ends_this_one",),
        note="in the simulator to lead again is refused as well: nothing is broken by it",
    ),
    Mutation(
        "a group that is loaded again begins with an empty queue of records",
        (
            Change(
                _WRITER,
                "        self.queue = WriteQueue()\n        self._trimmed_at",
                "        self._trimmed_at",
            ),
        ),
        ("NothingFails", "DurableReplies", "ComesToRest"),
        _OFTEN_BROKEN,
    ),
    Mutation(
        "what waited for records is forgotten with them",
        (Change(_WAITING, "        self._deferred.clear()\n", ""),),
        ("DurableReplies", "RefusalsHold", "NothingFails", "OneOwner"),
        ("group_fault=30", "write_latency_ms=40", "write_records_max=1"),
    ),
    Mutation(
        "who waits for what was forgotten is answered anew",
        (
            Change(
                _WAITING,
                "                    self.park(call, park_to_ms)\n",
                "                    pass\n",
            ),
        ),
        tests=(f"{FAULTS}::test_a_group_that_failed_says_so_and_the_others_do_not[memory]",),
    ),
    Mutation(
        "SystemExit and its like are faults of one group",
        (
            Change(
                _RUNTIME,
                "except BaseException as error:  # noqa: BLE001 - see the head",
                "except Exception as error:  # noqa: BLE001 - see the head",
            ),
        ),
        tests=(f"{_HEALS}[ticks.begin-SystemExit]",),
    ),
    Mutation(
        "readers are fenced anew when a group is loaded again",
        (Change(_RUNTIME, "led, FenceReaders(epochs), Changed()]", "led, Changed()]"),),
        tests=(
            f"{_UNIT}test_after_a_fault_all_waits_until_the_group_is_loaded_and_is_decided_anew",
        ),
    ),
    Mutation(
        "who cannot be parked is refused",
        (
            Change(
                _WAITING,
                "                self.refuse(call, DeadlineExceeded(told))\n\n",
                "                pass\n\n",
            ),
        ),
        tests=(f"{_HEALS}[waiting.park-RuntimeError]",),
    ),
    # --- heartbeats -----------------------------------------------------------------------------
    Mutation(
        "a heartbeat that waits renews no lease",
        (Change(_RUNTIME, "if isinstance(event, Heartbeat) and heard is not None:", "if False:"),),
        tests=(f"{_HOST}test_a_heartbeat_that_waits_renews_no_lease_meanwhile",),
    ),
    Mutation(
        "who is refused is not told to be heard while the registry is away",
        (
            Change(
                _WAITING,
                "if call.refused is not None:\n            # Not",
                "if False:\n            # Not",
            ),
        ),
        tests=(f"{_CUT}test_a_refusal_that_waits_for_the_registry_renews_no_lease",),
    ),
    Mutation(
        "a heartbeat is answered at its end",
        (Change(_WAITING, "elif call.heard is not None:", "elif False:"),),
        tests=(f"{_HOST}test_a_heartbeat_hears_of_a_change_and_nothing_else",),
    ),
    Mutation(
        "a change of an assignment answers the heartbeat that waits for it",
        (
            Change(
                _RUNTIME,
                "case AssignmentChanged():\n                    self._look(effect.member, now)",
                "case AssignmentChanged():\n                    pass",
            ),
        ),
        tests=(f"{_HOST}test_a_heartbeat_hears_of_a_change_and_nothing_else",),
    ),
)
