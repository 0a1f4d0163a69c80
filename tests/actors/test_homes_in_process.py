"""Homes as a coordinator acts on them: durable first, and a slot that waits holds up nobody."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnschedulableError

from pxrs_ray.actors.cluster import node_watch
from pxrs_ray.actors.coordinator import buffer_slots
from pxrs_ray.actors.coordinator.coordinator import Coordinator
from pxrs_ray.config import PxrsConfig
from pxrs_ray.errors import DeadlineExceeded, RegistryNotHere, SlotWaits, UsageError
from pxrs_ray.log.identity import Identity
from pxrs_ray.status.places import AT_HOME
from pxrs_ray.topology.disk_survey import DiskTrace, Looked
from pxrs_ray.topology.homes import Home, homes_from
from pxrs_ray.topology.node_seen import NodeSeen
from tests.actors.fake_buffers import FakeBuffer, stand_in, until

AWAY_TOLD = "buffer 1 waits for host 10.0.0.2, away for"


class Cluster:
    """Nodes as Ray tells them, and what lies on their disks; who was placed where, in order."""

    def __init__(self, fakes: list[FakeBuffer]) -> None:
        self.fakes = fakes
        self.nodes = [NodeSeen("here", "10.0.0.1"), NodeSeen("there", "10.0.0.2")]
        self.disks = {"there": "d-there", "there-again": "d-there", "third": "d-third"}
        self.traces: dict[str, tuple[DiskTrace, ...]] = {}
        self.placed: list[tuple[int, Home]] = []
        self.stored: list[str] = []

    def living(self) -> tuple[list[NodeSeen], str]:
        return list(self.nodes), "here"

    def probe(self, node: str, _: object) -> Future[Looked]:
        answer: Future[Looked] = Future()
        if node in self.disks:
            answer.set_result(
                Looked(self.disks[node], f"boot of {node}", None, self.traces.get(node, ()))
            )
        return answer  # or never

    def place(self, _: str, index: int, *rest: Any) -> FakeBuffer:
        self.placed.append((index, rest[-1]))
        self.fakes[index].restart()
        return self.fakes[index]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(stand_in(monkeypatch))
    monkeypatch.setattr(node_watch, "living_nodes", made.living)
    monkeypatch.setattr(node_watch, "begin_probe", made.probe)
    monkeypatch.setattr(node_watch, "FIRST_WAIT_S", 0.2)
    monkeypatch.setattr(buffer_slots, "buffer_at_home", made.place)
    return made


def coordinator(folder: Path, begin: bool = True, **options: Any) -> Coordinator:
    config = PxrsConfig(
        name="shop",
        data_dir=folder,
        lease_ttl_seconds=1.0,
        queues={"a": {"partitions": 2}, "b": {"partitions": 2}},
        **options,
    )
    made = Coordinator(config, 2)
    made._may_begin = begin
    return made


def run(scene: Any) -> None:
    asyncio.run(asyncio.wait_for(scene, 30))


async def stored(found: Coordinator) -> Any:
    documents = await found._thread.call(found._store.documents, "shop")
    return homes_from(documents.get("homes", ""))


def test_a_home_is_durable_before_anybody_is_placed(cluster: Cluster, tmp_path: Path) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        seen: list[bool] = []
        place = cluster.place

        def checked(topology: str, index: int, *rest: Any) -> FakeBuffer:
            homes = homes_from(found._store.documents("shop").get("homes", ""))
            seen.append(homes.slots.get(index) == rest[-1])
            return place(topology, index, *rest)

        cluster.place = checked  # type: ignore[method-assign]
        buffer_slots.buffer_at_home = checked  # type: ignore[assignment]
        await found.ping()
        assert seen == [True, True]
        assert {home.node for _, home in cluster.placed} == {"here", "there"}
        homes = await stored(found)
        assert {queue: one.made for queue, one in homes.queues.items()} == {
            "a": (0, 1),
            "b": (0, 1),
        }
        assert len({one.queue_id for one in homes.queues.values()}) == 2
        assert homes.registry is not None and homes.registry.host == "10.0.0.1"
        await found.shutdown()

    run(scene())


def test_a_slot_that_waits_holds_up_neither_start_nor_queues_nor_groups(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        first = coordinator(tmp_path)
        await first.group("g", "a", {})
        await first.shutdown()
        cluster.nodes.pop()
        cluster.placed.clear()
        began_s = time.monotonic()
        second = coordinator(tmp_path, begin=False)
        await second.ping()
        assert time.monotonic() - began_s < 5
        assert [index for index, _ in cluster.placed] == [0]
        assert any(r.text.startswith(AWAY_TOLD) for r in second._pool.reports())
        with pytest.raises(SlotWaits, match="waits for host"):
            await second._pool._ask(1, lambda to: to.ends("a"))
        # What is new is made where it can be; the rest when the host is back.
        await second.group("h", "b", {})
        wanted = (await second.config()).changed(queues={"c": {"partitions": 2}})
        await second.apply(wanted)
        assert (await stored(second)).queues["c"].made == (0,)
        await second.shutdown()

    run(scene())


def test_a_host_that_is_back_under_another_node_id_is_home_at_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        cluster.nodes.pop()
        cluster.fakes[1].faults["ping"] = [ConnectionError("gone")] * 1_000
        await until(lambda: any(AWAY_TOLD in report.text for report in found._pool.reports()))
        cluster.placed.clear()
        cluster.fakes[1].faults.clear()
        cluster.fakes[1].opened.clear()
        cluster.nodes.append(NodeSeen("there-again", "10.0.0.2"))
        began_s = time.monotonic()
        await until(lambda: cluster.fakes[1].opened == {"a", "b"})
        assert time.monotonic() - began_s < 2
        [(index, home)] = cluster.placed
        assert (index, home.disk, home.node, home.term) == (1, "d-there", "there-again", 2)
        await until(lambda: not found._pool.reports())
        await found.shutdown()

    run(scene())


def test_a_disk_is_given_up_by_command_once_its_lease_is_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        with pytest.raises(UsageError, match="is at home on host"):
            await found.accept_buffer_loss(1)
        cluster.nodes[1:] = [NodeSeen("third", "10.0.0.3")]
        cluster.fakes[1].faults["ping"] = [ConnectionError("gone")] * 1_000
        await until(lambda: any(AWAY_TOLD in report.text for report in found._pool.reports()))
        cluster.placed.clear()
        assert "disk d-there of host 10.0.0.2" in await found.plan_buffer_loss(1)
        await found.accept_buffer_loss(1)
        cluster.fakes[1].faults.clear()
        await until(lambda: cluster.placed)
        [(index, home)] = cluster.placed
        assert (index, home.disk, home.term) == (1, "d-third", 2)
        # That they were made once is known: what is not there is lost, and not new.
        assert (await stored(found)).queues["a"].made == (0, 1)
        await found.shutdown()

    run(scene())


def test_a_registry_is_not_begun_where_another_host_knows_the_topology(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        known = Identity("an-id", 3, "leader", "d-away", "10.0.0.7")
        cluster.traces["there"] = (DiskTrace(1, known),)
        with pytest.raises(RegistryNotHere, match=r"host 10\.0\.0\.7 .*which is away"):
            await coordinator(tmp_path).ping()
        assert not (tmp_path / "shop" / "registry.db").exists()

    run(scene())


def test_a_restart_begins_nothing_and_names_what_is_missing(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        first = coordinator(tmp_path)
        await first.ping()
        await first.shutdown()
        for file in (tmp_path / "shop").glob("registry.db*"):
            file.unlink()
        with pytest.raises(RegistryNotHere, match=r"lay on host 10\.0\.0\.1 .*is there no more"):
            await coordinator(tmp_path, begin=False).ping()
        assert not list((tmp_path / "shop").glob("registry.db*"))

    run(scene())


def test_nothing_begins_while_a_node_does_not_tell(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        monkeypatch.setattr(node_watch, "FIRST_WAIT_S", 0.01)
        cluster.disks.pop("there")
        found = coordinator(tmp_path)
        begun = asyncio.ensure_future(found.ping())
        await asyncio.sleep(1)
        assert not begun.done()
        assert not (tmp_path / "shop" / "registry.db").exists()
        cluster.nodes.pop()  # it is taken out of the cluster
        await begun
        await found.shutdown()

    run(scene())


def test_a_disk_on_the_network_is_served_from_another_node_when_the_lease_is_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Ray still has the node and the actor: the one that is cut off, and says nothing."""

    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        cluster.placed.clear()
        cluster.disks["third"] = "d-there"
        cluster.nodes.append(NodeSeen("third", "10.0.0.3"))
        cluster.fakes[1].faults["ping"] = [DeadlineExceeded("no answer")] * 1_000
        began_s = time.monotonic()
        await until(lambda: cluster.placed)
        assert time.monotonic() - began_s > 0.9
        [(index, home)] = cluster.placed
        assert (index, home.disk, home.node, home.term) == (1, "d-there", "third", 2)
        await found.shutdown()

    run(scene())


def test_several_may_ask_at_once_which_nodes_live(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move that begins asks while a round of homes does."""

    def slow() -> tuple[list[NodeSeen], str]:
        time.sleep(0.1)
        return cluster.living()

    monkeypatch.setattr(node_watch, "living_nodes", slow)

    async def scene() -> None:
        watch = node_watch.NodeWatch(
            node_watch.asked_of(PxrsConfig(name="shop", data_dir=tmp_path), make=False)
        )
        answers = await asyncio.gather(watch.living(), watch.living())
        watch.close()
        assert [[node.node for node in nodes or ()] for nodes in answers] == [["here", "there"]] * 2

    run(scene())


def test_a_round_takes_back_no_home_that_a_move_writes_meanwhile(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The registry is slow: the move writes while the round waits to write of another slot."""

    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        homing, go_on, writing = found._homing, asyncio.Event(), asyncio.Event()
        put = homing._put

        async def slowly(name: str, text: str) -> None:
            writing.set()
            await go_on.wait()
            await put(name, text)

        homing._put = slowly
        by_host = {home.host: slot for slot, home in homing.homes.slots.items()}
        moves, goes = by_host["10.0.0.1"], by_host["10.0.0.2"]
        await homing.hold(moves)
        third = NodeSeen("third", "10.0.0.3", disk="d-third")
        move = asyncio.create_task(homing.carry(homing.rounds.moved(moves, third)))
        await writing.wait()
        cluster.nodes.pop()
        cluster.fakes[goes].faults["ping"] = [ConnectionError("gone")] * 1_000
        one = asyncio.create_task(homing.round())
        await asyncio.sleep(1.0)  # a round that has to look does not wait for longer
        go_on.set()
        await asyncio.gather(move, one)
        await homing.round()
        homes = await stored(found)
        await found.shutdown()
        assert homes.slots[moves].disk == "d-third"
        assert homes.slots[goes].away_since_ms is not None

    run(scene())


@pytest.mark.parametrize("method", ["fences", "passed", "open"])
@pytest.mark.parametrize("gone", [ActorDiedError(), ActorUnschedulableError("its node is gone")])
def test_a_buffer_that_goes_away_while_a_group_is_made_is_asked_when_it_is_back(
    cluster: Cluster, tmp_path: Path, method: str, gone: BaseException
) -> None:
    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        calls = cluster.fakes[1].calls
        before = len(calls)
        cluster.fakes[1].faults[method] = [gone]
        assert await found.group("g", "a", {}) == "g"
        assert not cluster.fakes[1].faults[method]
        # Not from here on: on a busy machine it is back, and asked, before the group is there.
        failed = calls.index(method, before)
        again = "passed" if method == "passed" else "fences"
        await until(lambda: again in calls[failed + 1 :])
        await until(lambda: found._pool.state(1)[0] == AT_HOME)
        await until(lambda: not found._pool.reports())
        await found.shutdown()

    run(scene())


def test_a_buffer_that_goes_away_while_a_coordinator_starts_does_not_hold_it_up(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        cluster.fakes[1].faults["belong"] = [ActorUnschedulableError("its node is gone")]
        found = coordinator(tmp_path)
        await found.ping()
        assert cluster.fakes[0].calls.count("belong") == 1, "it started more than once"
        await until(lambda: cluster.fakes[1].calls.count("belong") == 2)
        await until(lambda: found._pool.state(1)[0] == AT_HOME)
        await found.shutdown()

    run(scene())


@pytest.mark.parametrize(
    "shared", [False, True], ids=["a disk of its own", "a disk that is shared"]
)
def test_a_registry_on_a_host_that_is_drained_is_told(
    cluster: Cluster, tmp_path: Path, shared: bool
) -> None:
    """Ray's own drain asks nobody: what goes with the host is said before it goes."""

    async def scene() -> None:
        found = coordinator(tmp_path)
        await found.ping()
        home = (await stored(found)).registry
        assert home is not None and home.node == "here"
        if shared:
            cluster.disks["there"] = home.disk
            found._homing._watch.forget("there")
        cluster.nodes[0] = NodeSeen("here", "10.0.0.1", draining=True)

        def told() -> bool:
            return any(
                "drained" in r.text and "store copy" in r.text for r in found._homing.reports()
            )

        if shared:
            await asyncio.sleep(1.5)
            assert not told()
            return
        await until(told)
        assert any("which is drained" in p.text for p in (await found.status()).problems)
        cluster.nodes[0] = NodeSeen("here", "10.0.0.1")
        await until(lambda: not told())

    run(scene())
