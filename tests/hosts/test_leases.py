"""Who is cut off stops by its own lease; who waits for nobody's GCS does not stop at all."""

from __future__ import annotations

import time

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
    with world.load(cut_off):
        world.until(lambda: len(world.acknowledged()) > 60, 30, "acknowledgements")
        hosts.cut(cut_off)
        cut_s = time.monotonic()
        time.sleep(CUT_S)
        healed_s = time.monotonic()
        hosts.heal()
        world.until(
            lambda: there <= {a.partition for a in world.acknowledged() if a.at_s > healed_s},
            20,
            "acknowledgements after the heal",
        )
    late = [a for a in world.acknowledged() if cut_s + LEASE_S + SLACK_S < a.at_s < healed_s]
    assert not late, f"{len(late)} acknowledged behind the cut, the last {late[-1]}"
    cluster.ray_everywhere()  # a busy GCS may have given the host up
    world.start()
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


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
