"""Who is cut off stops by its own lease; who waits for nobody's GCS does not stop at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.hosts.conftest import Cluster
from tests.hosts.notes import Handled
from tests.hosts.world import LEASE_S, Desk

# Ray takes a silent node for dead after nine seconds.
CUT_S = 6.0
BACKLOG = 900
WORK_S = 0.1
GONE_S = 12.0
ANSWERED_S = 10.0
STATUS_S = 2.0
# Between a lease's end and the note of it: a message in hand, and a scheduler that is late.
SLACK_S = 0.5
# Between an acknowledgement and the note of it: a buffer, a link and a producer that are late.
TOLD_SLACK_S = 1.0
LOOK_S = 0.02


@contextmanager
def lateness() -> Iterator[Callable[[], float]]:
    """Answers how late who sleeps was woken meanwhile, at the most: what a busy machine adds."""
    found, over = [0.0], threading.Event()

    def look() -> None:
        while not over.is_set():
            began_s = time.monotonic()
            time.sleep(LOOK_S)
            found.append(time.monotonic() - began_s - LOOK_S)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda: max(found)
    finally:
        over.set()
        thread.join()


def test_a_cut_off_owner_stops_by_its_lease(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    # A backlog: it has messages in memory, and a log on its side of the cut to read on from.
    world.send(0, BACKLOG)
    world.start(work_s=WORK_S)
    world.settled()
    cut_off = world.one_to_lose()
    began_s = time.monotonic()

    def there() -> list[Handled]:
        return [one for one in world.handled() if one.host == f"h{cut_off}"]

    world.until(lambda: [one for one in there() if one.from_s > began_s], 30, "work on it")
    hosts.cut(cut_off)
    cut_s = time.monotonic()
    time.sleep(CUT_S)
    healed_s = time.monotonic()
    hosts.heal()
    late = [one for one in there() if cut_s + LEASE_S < one.from_s < healed_s]
    mine = {one.partition for one in there() if began_s < one.from_s < cut_s}
    assert not late, f"it began {len(late)} messages after its lease"
    verdict = world.verdict(overlap_s_max=WORK_S)
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
    taken = {
        one.partition
        for one in world.handled()
        if one.host != f"h{cut_off}" and cut_s + LEASE_S / 2 < one.from_s < healed_s
    }
    assert mine - world.partitions_of(cut_off) <= taken, "nobody took over"


def test_a_cut_off_buffer_acknowledges_nothing_beyond_its_lease(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    cut_off = world.one_to_lose()
    there = world.partitions_of(cut_off)
    load = world.begin_load(cut_off, "--per-second=60")
    load.wait_up()
    world.until(lambda: len(world.acknowledged()) > 60, 30, "acknowledgements")
    hosts.cut(cut_off)
    cut_s = time.monotonic()
    with lateness() as late_s:
        time.sleep(CUT_S)
    healed_s = time.monotonic()
    hosts.heal()

    def served() -> bool:
        return there <= {a.partition for a in world.acknowledged() if a.at_s > healed_s}

    def given_up() -> bool:
        """A busy GCS may have taken the host for dead: then whatever ran on its node ends."""
        return hosts[cut_off].address not in world.desk("nodes")

    world.until(lambda: served() or given_up(), 20, "acknowledgements after the heal")
    if not served():
        cluster.ray_everywhere()
        with world.load(0):
            world.until(served, 30, "acknowledgements by the node that is back")
    lived = load.lives
    assert load.end() or not lived, load.told()
    beyond_s = cut_s + LEASE_S + TOLD_SLACK_S + late_s()
    late = [a for a in world.acknowledged() if beyond_s < a.at_s < healed_s]
    assert not late, f"{len(late)} acknowledged behind the cut, the last {late[-1]}"
    assert beyond_s < healed_s - SLACK_S, "the machine was too busy to tell"
    # Ray may notice only now that it has taken the host for dead; what was under way is refused.
    gone = given_up()
    if gone:
        cluster.ray_everywhere()
    world.start()
    verdict = world.verdict()
    assert verdict.sound and (gone or verdict.refused == 0), f"{verdict}\n{world.told()}"


def test_nothing_stops_while_the_gcs_is_frozen(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    world.start()
    status = world.settled()
    consumers = {name: at for name, at in world.actors().items() if name.startswith("consumer/")}
    victim = next(name for name, (host, _) in consumers.items() if host != 0)
    member = victim.split("/")[2]
    theirs = set(status["owners"][member])
    gcs = hosts[0].find("gcs_server")
    asker = Desk(hosts[0])
    asker("group", name=world.name)
    with world.load(1, 2):
        world.until(lambda: len(world.handled()) > 60, 30, "work")
        hosts[0].freeze(gcs)
        try:
            frozen_s = time.monotonic()
            host, pid = consumers[victim]
            hosts[host].kill(pid)
            time.sleep(GONE_S)
            asked_s = time.monotonic()
            during = asker("group", ANSWERED_S, name=world.name)
            answered_s = time.monotonic() - asked_s
        finally:
            hosts[0].thaw(gcs)
            asker.close()
    taken = {one.partition for one in world.handled() if one.from_s < frozen_s + GONE_S}
    late = world.handled_since(frozen_s + LEASE_S + 3.0)
    assert theirs <= late & taken, f"P{theirs - late} stood still while the GCS was frozen"
    assert answered_s < STATUS_S, f"the status took {answered_s:.1f} s"
    before = {row["partition"]: row["checkpoint"] for row in status["partitions"]}
    moved = {
        row["partition"]
        for row in during["partitions"]
        if row["checkpoint"] > before[row["partition"]]
    }
    assert len(moved) == world.partitions, "commits stood still"
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
