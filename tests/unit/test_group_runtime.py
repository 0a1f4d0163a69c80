"""`GroupRuntime` by itself: what leaves when, the calls of the store, what a fault does."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.clock import Instant
from pxrs_ray.errors import CoordinatorDeposed, DeadlineExceeded, StoreCorrupted, StoreUnavailable
from pxrs_ray.group.events import Commit, FenceReaders, Heartbeat, Join, PartitionProgress
from pxrs_ray.group.group_runtime import WELL_WAIT_MS, GroupRuntime
from pxrs_ray.group.runtime_effects import (
    Deposed,
    Faulted,
    GroupAnswer,
    LeadAgain,
    Led,
    LoadAgain,
    Refusal,
    RenewLeases,
    TrimHistory,
    WriteRecords,
)
from pxrs_ray.model import Member, Outcome, Progress
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.supervision.registry_watch import RegistryWatch
from tests.settings import group_settings

LEASE_MS = 9_000
CALLS = (WriteRecords, LoadAgain, LeadAgain, RenewLeases, TrimHistory)


class Scene:
    """A runtime, its store, and a clock that a test moves."""

    def __init__(self, history_keep: int = 1_000) -> None:
        self.store = MemoryStore()
        self.store.create()
        self.now_ms = 1_000
        self.registry = RegistryWatch()
        self.runtime = GroupRuntime("g", self.registry, history_keep)
        snapshot = self.store.lead("g", 2, "first")
        self.runtime.begin(snapshot, group_settings(lease_ms=LEASE_MS), self.now())

    def now(self) -> Instant:
        return Instant(self.now_ms, 1_700_000_000_000 + self.now_ms)

    def taken(self, *kinds: type) -> list[Any]:
        """Take what was left of these kinds, and forget the rest."""
        found = [output for output in self.runtime.outputs if isinstance(output, kinds)]
        self.runtime.outputs.clear()
        return found

    def answer(self, call: Any) -> None:
        """Let the store answer a call."""
        answer: Any
        match call:
            case WriteRecords(generation, batch):
                answer = self.store.write("g", generation, batch.records)
            case LoadAgain():
                answer = self.store.load("g")
            case LeadAgain():
                answer = self.store.lead("g", 2, "again")
            case RenewLeases(generation, members, lease_ms):
                answer = self.store.renew("g", generation, members, lease_ms)
            case TrimHistory(generation, keep):
                answer = self.store.trim_changes("g", generation, keep)
        self.runtime.answered(call, answer, self.now())

    def serve(self) -> list[Any]:
        """GroupAnswer every call of the store until there is none; what else was left."""
        left: list[Any] = []
        while outputs := list(self.runtime.outputs):
            self.runtime.outputs.clear()
            for output in outputs:
                if isinstance(output, CALLS):
                    self.answer(output)
                else:
                    left.append(output)
        return left

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.runtime.wake(self.now())

    def submit(self, event: Any, caller: object = "me") -> None:
        self.runtime.submit(event, caller, self.now())

    def joined(self) -> None:
        self.submit(Join((Member("a", 1),)))
        self.serve()


def commit(offset: int) -> Commit:
    return Commit("a", 1, (PartitionProgress(0, 1, Progress(offset)),))


def test_nothing_is_answered_before_it_is_durable_and_then_in_order() -> None:
    scene = Scene()
    scene.submit(Join((Member("a", 1),)), "joins")
    assert [type(output) for output in scene.runtime.outputs] == [WriteRecords]
    (call,) = scene.taken(WriteRecords)
    scene.submit(Heartbeat("a", 1), "beats")
    assert scene.taken(GroupAnswer, Refusal, *CALLS) == []
    scene.answer(call)
    kinds = [type(output) for output in scene.runtime.outputs]
    assert kinds.index(Led) < kinds.index(FenceReaders) < kinds.index(GroupAnswer)
    assert [answer.caller for answer in scene.taken(GroupAnswer)] == ["joins", "beats"]


def test_a_call_that_was_not_answered_is_made_again_and_its_late_answer_is_ignored() -> None:
    scene = Scene()
    scene.submit(Join((Member("a", 1),)))
    (first,) = scene.taken(*CALLS)
    scene.runtime.answered(first, StoreUnavailable("away"), scene.now())
    assert scene.taken(*CALLS) == [] and scene.runtime.wake_ms() == scene.now_ms + 50
    scene.pass_ms(50)
    (again,) = scene.taken(*CALLS)
    assert again == first and again is not first
    scene.runtime.answered(first, [Outcome.FENCED], scene.now())
    assert scene.taken(*CALLS, GroupAnswer, Refusal) == []
    scene.answer(again)
    assert len(scene.taken(GroupAnswer)) == 1


def test_a_registry_that_is_back_is_asked_at_once() -> None:
    scene = Scene()
    scene.submit(Join((Member("a", 1),)))
    for _ in range(6):
        (call,) = scene.taken(*CALLS)
        scene.runtime.answered(call, StoreUnavailable("away"), scene.now())
        pause_ms = (scene.runtime.wake_ms() or 0) - scene.now_ms
        scene.pass_ms(min(pause_ms, 100))
        if pause_ms > 100:
            break
    assert scene.taken(WriteRecords) == []
    scene.runtime.registry_answers(scene.now())
    scene.pass_ms(0)
    assert len(scene.taken(WriteRecords)) == 1


def test_while_the_registry_refuses_an_idle_group_takes_nobody_for_dead() -> None:
    """Nothing waits to be written, so only the calls that fail tell that the registry is away."""
    scene = Scene()
    scene.joined()
    began_ms, owners = scene.now_ms, [row.owner for row in scene.runtime.core.state.rows]
    assert owners == ["a", "a"]
    while scene.now_ms < began_ms + 3 * LEASE_MS:
        scene.pass_ms(max(1, (scene.runtime.wake_ms() or 0) - scene.now_ms))
        for call in scene.taken(*CALLS):
            assert isinstance(call, RenewLeases), "nothing was decided"
            scene.registry.asked(scene.now_ms)
            scene.registry.failed(scene.now_ms)
            scene.runtime.answered(call, StoreUnavailable("away"), scene.now())
    assert [row.owner for row in scene.runtime.core.state.rows] == owners
    scene.registry.answered()
    came_back_ms = scene.now_ms
    while scene.now_ms < came_back_ms + 2 * LEASE_MS:
        scene.pass_ms(max(1, (scene.runtime.wake_ms() or 0) - scene.now_ms))
        scene.serve()
    assert [row.owner for row in scene.runtime.core.state.rows] == [None, None], "time counts again"


def test_a_renewal_that_is_refused_finds_the_newer_coordinator() -> None:
    scene = Scene()
    scene.joined()
    scene.store.lead("g", 2, "another")
    for _ in range(3):
        scene.pass_ms(LEASE_MS // 9)
        scene.submit(Heartbeat("a", 1, (1, 99)))
    left = scene.serve()
    assert [type(output) for output in left if not isinstance(output, GroupAnswer)] == [Deposed]
    scene.submit(Heartbeat("a", 1), "late")
    (refused,) = scene.taken(Refusal)
    assert refused.caller == "late" and isinstance(refused.error, CoordinatorDeposed)


def test_a_registry_that_lost_what_it_accepted_halts_the_group() -> None:
    scene = Scene()
    scene.joined()
    scene.store.remove_group("g")
    scene.submit(commit(3))
    left = scene.serve()
    assert isinstance(scene.runtime.halted, StoreCorrupted)
    assert [type(output) for output in left] == [Faulted, Refusal]
    assert scene.runtime.wake_ms() is None


def test_after_a_fault_all_waits_until_the_group_is_loaded_and_is_decided_anew() -> None:
    scene = Scene()
    scene.joined()
    scene.submit(commit(3), "commits")
    (write,) = scene.taken(WriteRecords)
    scene.runtime.failed(RuntimeError("a fault"), scene.now())
    scene.submit(Heartbeat("a", 1), "beats")
    assert [type(o) for o in scene.runtime.outputs] == [Faulted]
    assert "a fault" in scene.runtime.problem(scene.now())
    scene.answer(write)  # it was on its way, and lands
    assert scene.taken(GroupAnswer, *CALLS) == []
    scene.pass_ms(100)
    (lead,) = scene.taken(*CALLS)
    assert isinstance(lead, LeadAgain)
    scene.answer(lead)
    left = scene.serve()
    assert [o.caller for o in left if isinstance(o, GroupAnswer)] == ["commits", "beats"]
    # A reader of an epoch that is over may have come while nobody was told.
    assert [dict(o.epochs) for o in left if isinstance(o, FenceReaders)] == [{0: 1, 1: 1}]
    stored = scene.store.load("g")
    assert stored is not None and stored.generation == 2 and stored.partitions[0].checkpoint == 3


def test_who_asks_a_group_that_stays_broken_is_told_to_ask_again() -> None:
    scene = Scene()
    scene.joined()
    scene.runtime.failed(RuntimeError("a fault"), scene.now())
    scene.submit(commit(3), "waits")
    pauses, begun_ms = [], scene.now_ms
    while scene.now_ms < begun_ms + WELL_WAIT_MS:
        wake_ms = scene.runtime.wake_ms()
        assert wake_ms is not None
        pauses.append(wake_ms - scene.now_ms)
        scene.pass_ms(max(1, wake_ms - scene.now_ms))
        for call in [o for o in scene.runtime.outputs if isinstance(o, LeadAgain)]:
            scene.runtime.outputs.remove(call)
            scene.runtime.answered(call, StoreUnavailable("away"), scene.now())
    assert pauses[:4] == [50, 100, 200, 400]
    (refused,) = scene.taken(Refusal)
    assert refused.caller == "waits" and isinstance(refused.error, DeadlineExceeded)


@pytest.mark.parametrize("durable", [True, False])
def test_a_heartbeat_is_answered_at_its_end_without_what_is_not_durable(durable: bool) -> None:
    scene = Scene()
    scene.joined()
    told = scene.runtime.core.assignment("a")
    beat = Heartbeat("a", 1, (told.generation, told.sequence))
    scene.runtime.heartbeat(beat, 500, "beats", scene.now())
    scene.submit(Join((Member("b", 1),)), "joins")
    if durable:
        answers = {o.caller: o.reply for o in scene.serve() if isinstance(o, GroupAnswer)}
        assert answers["beats"].assignment is not None
        return
    (write,) = scene.taken(WriteRecords)
    scene.pass_ms(499)
    assert scene.taken(GroupAnswer) == []
    scene.pass_ms(1)
    (answer,) = scene.taken(GroupAnswer)
    assert answer.caller == "beats" and answer.reply.assignment is None
    scene.answer(write)
    assert [a.caller for a in scene.taken(GroupAnswer)] == ["joins"]


def test_what_is_forgotten_of_the_history_waits_for_nobody() -> None:
    scene = Scene(history_keep=10)
    for incarnation in range(1, 12):
        scene.submit(Join((Member("a", incarnation),)))
        scene.serve()
    assert len(scene.store.changes("g", 0)) <= 20
