"""Each kind of end at each place that a supervisor runs: it is told, and the work goes on.

`PLACES` names every place of the product and the test that injects there; a place that is new has
to be added to it.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.buffer import maintenance
from pxrs_ray.actors.client import tenants
from pxrs_ray.actors.cluster import watchdog
from pxrs_ray.actors.consumer import call_gate
from pxrs_ray.actors.coordinator import (
    autoscaler,
    buffer_pool,
    consumer_replicas,
    drain_watch,
    home_controller,
    metrics,
    store_thread,
    tenant_router,
)
from pxrs_ray.actors.coordinator.replicas_document import ReplicasDocument
from pxrs_ray.config.options import ScalingConfig
from pxrs_ray.data.protocol import BufferInfo
from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.supervision import registry_calls
from pxrs_ray.supervision.supervisor import Supervisor, problems_here
from tests.actors import loops_of_homes, loops_of_replicas, loops_of_the_page
from tests.actors.ends import KINDS
from tests.actors.in_process import until
from tests.actors.in_process import world as world
from tests.actors.loops_of_homes import answers
from tests.actors.test_supervision import Fails, run
from tests.test_tidy import files_of_the_product, name_of

every_kind = pytest.mark.parametrize("kind", KINDS)
HERE = "test_every_loop::"
THREADS = "test_every_thread::"
GROUP = "test_group_faults::test_one_fault_fails_one_group_which_heals"
OF_ITSELF = f"{THREADS}test_what_a_buffer_does_of_itself_goes_on"
LOOPS = f"{HERE}test_a_loop_goes_on_and_is_told"
SUPERVISION = "test_supervision::"
BESIDE = f"{THREADS}test_what_a_consumer_does_beside_its_work_goes_on"
SILENT = "test_nothing_ends_silently::"
SUPERVISOR = "test_supervisor_in_process::test_who_died_is_replaced_whatever_that_meets"

# (file, what the place is called): the test that lets each kind of end be raised there.
PLACES = {
    ("actors/coordinator/autoscaler.py", "scaling"): LOOPS,
    ("actors/coordinator/buffer_pool.py", ""): LOOPS,
    ("actors/cluster/thread_pool.py", ""): f"{SUPERVISION}test_a_pool_loses_no_thread_to_a_call",
    ("actors/consumer/consumer_actor.py", "its end"): BESIDE,
    ("actors/consumer/consumer_actor.py", "its hand-over"): (
        f"{THREADS}test_a_hand_over_that_fails_ends_the_process"
    ),
    ("actors/consumer/call_gate.py", "its limits"): LOOPS,
    ("actors/consumer/consumer_actor.py", "looking"): BESIDE,
    (
        "actors/consumer/consumer_actor.py",
        "on_prepare",
    ): f"{SILENT}test_what_the_other_methods_raise_ends_nothing",
    (
        "actors/consumer/consumer_actor.py",
        "on_revoked",
    ): f"{SILENT}test_what_the_other_methods_raise_ends_nothing",
    ("actors/coordinator/coordinator.py", "metrics"): LOOPS,
    ("actors/coordinator/consumer_supervisor.py", ""): SUPERVISOR,
    ("actors/coordinator/drain_watch.py", ""): LOOPS,
    ("actors/coordinator/drain_watch.py", "watch"): LOOPS,
    ("actors/coordinator/group_host.py", "a call of the registry"): GROUP,
    ("actors/coordinator/group_controller.py", "telling the logs"): LOOPS,
    (
        "actors/buffer/coordinator_recovery.py",
        "its coordinator's watch",
    ): f"{THREADS}test_a_thread_goes_on",
    ("actors/coordinator/home_controller.py", "rounds"): LOOPS,
    ("actors/coordinator/home_controller.py", ""): LOOPS,
    ("actors/coordinator/home_controller.py", "homes"): LOOPS,
    ("actors/coordinator/replica_controller.py", "placing"): LOOPS,
    ("actors/coordinator/replica_controller.py", "keeping placements"): LOOPS,
    ("actors/coordinator/replica_controller.py", "telling a replica"): LOOPS,
    ("actors/coordinator/replica_placing.py", "logs left behind"): LOOPS,
    ("actors/coordinator/replica_controller.py", "ending a replica"): LOOPS,
    ("actors/coordinator/replica_controller.py", "a replica's return"): LOOPS,
    ("actors/coordinator/replica_controller.py", "a replica's logs"): LOOPS,
    ("actors/coordinator/replica_followers.py", "a follower's logs"): LOOPS,
    ("actors/buffer/replica_host.py", "its clock"): LOOPS,
    ("actors/buffer/replica_host.py", "telling of producers"): LOOPS,
    ("actors/buffer/replica_peers.py", ""): LOOPS,
    ("actors/coordinator/leadership.py", "buffers' leases"): LOOPS,
    ("actors/coordinator/leadership.py", "known ends"): LOOPS,
    ("actors/coordinator/buffer_moves.py", "leaving nodes"): LOOPS,
    ("actors/coordinator/buffer_moves.py", ""): LOOPS,
    ("actors/cluster/node_watch.py", ""): LOOPS,
    ("actors/buffer/buffer_clients.py", "finding a buffer"): f"{THREADS}test_a_look_is_told",
    ("actors/buffer/shared_answers.py", "pxrs-links"): f"{THREADS}test_the_thread_of_links_goes_on",
    ("actors/client/producer.py", "pxrs-producer"): f"{SUPERVISION}test_a_producers_thread_goes_on",
    ("actors/client/pull_consumer.py", "options"): LOOPS,
    (
        "actors/client/pulled_partitions.py",
        "",
    ): f"{SUPERVISION}test_work_done_once_tells_its_fault_and_answers_none",
    (
        "actors/consumer/group_member.py",
        "",
    ): f"{SUPERVISION}test_a_loop_of_a_member_begins_again_and_its_work_goes_on",
    (
        "actors/coordinator/consumer_replicas.py",
        "keeping the replicas",
    ): f"{THREADS}test_replicas_that_could_not_be_kept_are_kept_later",
    ("actors/coordinator/consumer_replicas.py", "ending orphans"): LOOPS,
    ("actors/buffer/start_notice.py", "pxrs-started"): (
        f"{THREADS}test_a_buffer_that_cannot_tell_its_start_starts"
    ),
    ("actors/coordinator/store_thread.py", "a look"): LOOPS,
    ("actors/coordinator/store_thread.py", "looks"): LOOPS,
    ("actors/coordinator/tenant_router.py", "leases"): LOOPS,
    ("actors/coordinator/tenant_router.py", "moves"): LOOPS,
    ("actors/coordinator/tenant_router.py", "the consumers of tenant"): LOOPS,
    ("actors/client/tenants.py", "pxrs-tenants"): f"{THREADS}test_a_thread_goes_on",
    ("actors/buffer/maintenance.py", "mending"): OF_ITSELF,
    ("actors/buffer/maintenance.py", "retention"): OF_ITSELF,
    ("actors/buffer/maintenance.py", "scrubbing"): OF_ITSELF,
    ("actors/cluster/watchdog.py", "beat"): LOOPS,
    ("actors/cluster/watchdog.py", "pxrs-pulse"): f"{THREADS}test_a_pulse_is_answered_again",
    ("actors/cluster/watchdog.py", "pxrs-watchdog"): f"{THREADS}test_a_thread_goes_on",
    (
        "actors/consumer/worker.py",
        "",
    ): f"{SILENT}test_what_a_handler_raises_is_a_failed_attempt_of_its_message",
    (
        "actors/consumer/worker_pool.py",
        "",
    ): f"{SILENT}test_an_on_assigned_that_raises_holds_up_its_partition_until_it_does_not",
    (
        "actors/buffer/log_writer.py",
        "syncing",
    ): f"{THREADS}test_a_writer_answers_every_job_and_goes_on",
    (
        "actors/buffer/log_writer.py",
        "writing",
    ): f"{THREADS}test_a_writer_answers_every_job_and_goes_on",
    ("pxrs_ray/dashboard/server.py", "looking"): LOOPS,
    ("pxrs_ray/dashboard/server.py", "its topologies"): LOOPS,
    (
        "pxrs_ray/demo/run.py",
        "pxrs-demo-feed",
    ): f"{THREADS}test_a_feed_in_the_background_raises_where_it_is_asked_for",
    ("spark/write.py", "pxrs-progress"): f"{THREADS}test_a_thread_goes_on",
}


def places_of(path: Path) -> set[tuple[str, str]]:
    """Every place that a file gives to a supervisor, by the text that it is called."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in ("keep", "once", "thread") or not node.args:
            continue
        name = node.args[0]
        if isinstance(name, ast.Lambda):
            continue  # a change of the homes, which is kept too
        text = name.value if isinstance(name, ast.Constant) else ""
        found.add((name_of(path), str(text)))
    return found


def test_every_place_is_injected_into() -> None:
    found = set().union(*(places_of(path) for path in files_of_the_product()))
    found = {place for place in found if place[0] != "pxrs_ray/supervision/supervisor.py"}
    literal = {place for place in found if place[1]}
    named = set(PLACES)
    assert literal <= named, "a new place: inject into it, and name the test"
    assert {file for file, _ in found} == {file for file, _ in named}
    for test in PLACES.values():
        module, _, name = test.partition("::")
        assert hasattr(importlib.import_module(f"tests.actors.{module}"), name), test


# --- loops --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in (
        (autoscaler, ["LOOK_PAUSE_S"]),
        (buffer_pool, ["PING_PAUSE_S"]),
        (drain_watch, ["LOOK_PAUSE_S"]),
        (home_controller, ["ROUND_PAUSE_S"]),
        (metrics, ["REPORT_EVERY_S"]),
        (registry_calls, ["PAUSE_MOST_S", "FRESH_MS"]),
        (tenant_router, ["LOOK_EVERY_S"]),
        (tenants, ["SYNC_EVERY_S"]),
        (maintenance, ["MEND_EVERY_S", "RETAIN_EVERY_S"]),
        (watchdog, ["LOOK_PAUSE_S", "ANSWER_WAIT_S"]),
    ):
        for name in names:
            monkeypatch.setattr(module, name, 0.01 if name.endswith("_S") else 0)


async def _autoscale(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    host = SimpleNamespace(group="g")
    made: Any = autoscaler.Autoscaler(SimpleNamespace(supervisor=1), host, None)  # type: ignore[arg-type]
    made._look = answers(fails)
    made.configure(ScalingConfig())
    return made.close


async def _buffers(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    pool = buffer_pool.BufferPool("t", 1, "")
    patch.setattr(pool, "_ask", _pinged)
    pool._handles[0] = SimpleNamespace()

    async def returned(index: int) -> None:
        await answers(fails)()

    pool.watch(returned)
    return pool.stop_watching


async def _buffers_failing(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    pool = buffer_pool.BufferPool("t", 1, "")
    pool._handles[0] = SimpleNamespace()
    patch.setattr(pool, "_look", answers(fails))
    pool.keep_granting()
    return pool.stop_watching


async def _pinged(*arguments: Any, **named: Any) -> BufferInfo:
    return BufferInfo("t", 0, "i", 1, "n", ())


async def _metrics(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    made: Any = object.__new__(metrics.TopologyMetrics)
    made._topology, made.report = "t", lambda found: None
    return Supervisor("t").keep("metrics", partial(made.report_for_ever, answers(fails))).cancel


async def _draining(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(drain_watch, "draining_nodes", lambda: fails() or set())
    return drain_watch.DrainWatch(list).close


async def _leaving(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(drain_watch, "draining_nodes", lambda: {"n"})
    one: Any = SimpleNamespace(spec=SimpleNamespace(group="g"), leave_nodes=answers(fails))
    return drain_watch.DrainWatch(lambda: [one]).close


async def _look(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    thread = store_thread.StoreThread(lambda: SimpleNamespace(close=lambda: None))  # type: ignore[arg-type,return-value]
    await thread.open()
    thread.look_by(fails)
    while not fails.worked.is_set():
        await thread.look(1.0)
    return thread.close


async def _look_on(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    thread = store_thread.StoreThread(lambda: SimpleNamespace(close=lambda: None))  # type: ignore[arg-type,return-value]
    await thread.open()

    def away() -> None:
        raise StoreUnavailable("away")

    thread.look_by(fails)
    patch.setattr(thread, "away_ms", lambda *arguments: None if fails.worked.is_set() else 1_000)
    with pytest.raises(StoreUnavailable):
        await thread.call(away)
    return thread.close


async def _moves(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    routes: Any = object.__new__(tenant_router.TenantRouter)
    routes._queue, routes._operating = "q", asyncio.Lock()
    routes._supervisor, routes._look = Supervisor("tenants of q"), answers(fails)
    return routes._supervisor.keep("moves", routes._look_for_ever).cancel


async def _tenants_leases(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    routes: Any = object.__new__(tenant_router.TenantRouter)
    routes._leases = SimpleNamespace(look=lambda now_s: fails())
    routes._supervisor = Supervisor("tenants of q")
    return routes._supervisor.keep("leases", routes._tick_for_ever).cancel


async def _orphans(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(consumer_replicas, "kill_orphans", answers(fails))
    spec: Any = SimpleNamespace(topology="t", group="g")
    made = consumer_replicas.ConsumerReplicas(spec, SimpleNamespace(), answers(fails))  # type: ignore[arg-type]
    await made.restore(ReplicasDocument())
    return made._loops.close


async def _tenants_consumers(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    routes: Any = object.__new__(tenant_router.TenantRouter)
    routes._supervisor, routes._starting = Supervisor("tenants of q"), {}
    routes._start = lambda tenant, options: fails()
    while not fails.worked.is_set():
        await routes._begin("a", {})
    return routes._supervisor.close


async def _telling(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    from pxrs_ray.actors.coordinator import group_controller

    patch.setattr(group_controller, "PASSED_PAUSE_S", 0.01)
    controller: Any = object.__new__(group_controller.GroupController)
    controller.logs = SimpleNamespace(try_again=answers(fails))
    controller._told, controller.checkpoints = {}, dict
    controller.host = SimpleNamespace(
        core=SimpleNamespace(state=SimpleNamespace(rows=[], members={}))
    )
    return Supervisor("group t/g").keep("telling the logs", controller._passed_loop).cancel


async def _beat(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    watched: Any = object.__new__(watchdog.Watched)
    watched.pulse, watched._beating = SimpleNamespace(beat=fails), None
    watched.begin()
    return watched._beating.cancel


async def _limits(fails: Fails, patch: pytest.MonkeyPatch) -> Any:
    gate = call_gate.CallGate(None)
    gate._waiting.append(call_gate._Waiting(0.0))

    async def ask(costs: tuple[float, ...]) -> tuple[int, int]:
        await answers(fails)()
        return 0, 10

    return Supervisor("a consumer").keep("its limits", partial(gate.let_pass, ask)).cancel


MADE = {
    **loops_of_homes.MADE,
    **loops_of_replicas.MADE,
    **loops_of_the_page.MADE,
    "scaling": _autoscale,
    "their watch": _buffers,
    "a buffer's watch": _buffers_failing,
    "metrics": _metrics,
    "draining": _draining,
    "leaving nodes": _leaving,
    "a look": _look,
    "looks": _look_on,
    "moves of tenants": _moves,
    "leases of tenants": _tenants_leases,
    "a tenant's consumers": _tenants_consumers,
    "ending orphans": _orphans,
    "telling the logs": _telling,
    "beat": _beat,
    "limits of calls": _limits,
}


@every_kind
@pytest.mark.parametrize("place", MADE)
def test_a_loop_goes_on_and_is_told(monkeypatch: pytest.MonkeyPatch, place: str, kind: str) -> None:
    async def main() -> None:
        fails = Fails(kind, 2)
        end = await MADE[place](fails, monkeypatch)
        seen: set[str] = set()
        await until(lambda: seen.update(problems_here()) or fails.worked.is_set())
        # A buffer that does not come back is away, which is told in its own words.
        assert place == "their watch" or any(kind in line for line in seen), seen
        ended = end()
        if asyncio.iscoroutine(ended):
            await ended
        await asyncio.sleep(0)

    run(main)
