"""What the live page shows and does, of the topologies that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from pxrs_ray.errors import PxrsError, UsageError

if TYPE_CHECKING:
    from pxrs_ray.actors.client.group import Group
    from pxrs_ray.actors.client.topology import Topology
    from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
    from pxrs_ray.dashboard.page_state import PageState
    from pxrs_ray.model import Change, Message
    from pxrs_ray.status.past import Point

# Two rebalances of some thousand partitions: fewer would tell a part of one as the whole.
CHANGES_MAX = 10_000
# A coordinator whose process does not answer for so long is told as that.
ANSWER_WAIT_S = 3.0
SHOWN_MAX = 200
# Of each partition so many that the newest of all are among them, unless one has nearly all.
NEWEST_MAX, NEWEST_EACH_MIN = 2_000, 2
LOOKED_AT_MAX = 200_000
TEXT_CHARS_MAX = 2_000


class RaySources:
    """The topologies of this cluster, or only the one that is named."""

    def __init__(self, only: str | None = None) -> None:
        self._only = only

    def names(self) -> Sequence[str]:
        """Those that have actors, so also one whose coordinator is missing."""
        from pxrs_ray.actors.cluster.named_actors import known_topologies

        return known_topologies() if self._only is None else [self._only]

    def of(self, topology: str) -> RaySource:
        """The one of that name."""
        from pxrs_ray.actors.client.topology import Topology

        return RaySource(Topology(topology))


class RaySource:
    """A running topology in the form that the page needs."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._coordinator: BlockingCoordinatorClient | None = None
        self._seen: dict[str, int] = {}

    def look(self) -> PageState:
        """The topology now, and what changed since the last look."""
        from pxrs_ray.actors.client.group import Group
        from pxrs_ray.dashboard.page_state import PageState

        self._check_alive()  # a status may take longer than people wait
        status = self._topology.status()
        changes: dict[str, tuple[Change, ...]] = {}
        for group in status.groups:
            seen = self._seen.get(group.group, max(0, group.version - CHANGES_MAX))
            if group.version > seen:
                name = group.group
                changes[name] = Group(status.topology, name).history(seen, CHANGES_MAX).changes
                self._seen[name] = max((c.version for c in changes[name]), default=seen)
        return PageState(status, self._topology.buffer_stats(), changes)

    def past(self) -> Mapping[str, Sequence[Point]]:
        """The last hour of each group, as the coordinator has kept it."""
        from pxrs_ray.actors.client.topology_past import topology_past

        return topology_past(self._topology.name)

    def check(self) -> None:
        """Raise PxrsError when the topology does not answer."""
        self._check_alive()
        self._topology.store_status()

    def _check_alive(self) -> None:
        from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient

        if self._coordinator is None:
            self._coordinator = BlockingCoordinatorClient(self._topology.name)
        self._coordinator.check_alive(ANSWER_WAIT_S)

    def messages(self, queue: str, asked: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """Messages of a queue as `pxrs tail` finds them: `partition`, `from` (a place or a time),
        `key`, `grep`. Where nothing says from where, the newest of all, and the newest first.

        Raises UsageError for a place that is none.
        """
        from pxrs_ray.actors.client.queue_reader import QueueReader
        from pxrs_ray.cli._options import moment_ms, partition_number
        from pxrs_ray.cli.tail import matching, pattern

        reader = QueueReader.of(self._topology, queue)
        newest = False
        key, grep, start = asked.get("key"), asked.get("grep"), asked.get("from", "")
        try:
            if text := asked.get("partition"):
                number = partition_number(text)
                reader.only({number: reader.positions.get(number, 0)})
            wanted = pattern(grep) if grep else None
            if start.isdecimal():
                reader.only(dict.fromkeys(reader.positions, int(start)))
            elif start and start != "start":
                reader.from_time(moment_ms(start))
            elif start or key or grep:
                reader.from_start()
            else:
                reader.newest(max(NEWEST_EACH_MIN, NEWEST_MAX // len(reader.positions)))
                newest = True
        except typer.BadParameter as error:
            raise UsageError(str(error)) from None
        found = islice(reader.messages(follow=False), LOOKED_AT_MAX)
        if newest:
            latest = sorted(found, key=lambda each: each.timestamp_ms, reverse=True)
            return [_plain(each) for each in latest[:SHOWN_MAX]]
        return [_plain(each) for each in islice(matching(found, key or None, wanted), SHOWN_MAX)]

    def aside(self, group: str) -> Mapping[str, Any]:
        """What a group has given up: its dead letters, and the keys in its quarantine."""
        from pxrs_ray.cli._show import text_of

        found = self._group(group)
        topology = self._topology.config
        name = group.removeprefix(f"{topology.prefix}.") if topology.prefix else group
        config = topology.resolved_group(name)
        told: dict[str, Any] = {"policy": config.failure_policy, "letters": [], "keys": []}
        if config.failure_policy == "dead_letter":
            told["letters"] = [
                {
                    "place": f"P{letter.partition}@{letter.offset}",
                    "from": f"P{letter.failed_partition}@{letter.failed_offset}",
                    "error": letter.error,
                    "attempts": letter.attempts,
                    **_plain(letter.message),
                    "at_ms": letter.at_ms,
                }
                for letter in found.dead_letters.list()[:SHOWN_MAX]
            ]
        if config.failure_policy == "quarantine":
            told["keys"] = [
                {
                    "key": None if key.key is None else text_of(key.key),
                    "messages": key.waiting,
                    "error": key.error,
                }
                for key in list(found.quarantine.list())[:SHOWN_MAX]
            ]
        return told

    def stack(self, consumer: str) -> Mapping[str, Any]:
        """Where the threads of GROUP/CONSUMER are, and its page in Ray's dashboard."""
        from pxrs_ray.actors.client.consumer_stacks import consumer_stacks, ray_page

        found = consumer_stacks(self._topology.name, consumer)
        return {"text": found.at_work().text(), "ray": ray_page(self._topology.name, consumer)}

    def act(self, action: str, group: str, value: Any) -> str:
        """Carry out an action on a group; `produce` is on a queue of that name."""
        if action == "produce":
            return self._produce(group, value)
        found = self._group(group)
        if action == "scale":
            if not isinstance(value, int) or isinstance(value, bool):
                raise UsageError("scale takes a number of consumers")
            found.scale(value)
            return f"{group} has {value} consumers"
        if action in ("seek", "plan_seek"):
            return _seek(found, action, value)
        if action == "retry_letters":
            return f"{found.dead_letters.retry(every=True)} dead letters were sent again"
        if action == "retry_letter":
            return f"{found.dead_letters.retry(places=[_letter(value)])} dead letter was sent again"
        if action == "drop_letter":
            return f"{found.dead_letters.drop(places=[_letter(value)])} dead letter was dropped"
        if action == "retry_keys":
            found.quarantine.retry_all()
            return f"the quarantine of {group} was re-driven"
        if action == "pause":
            found.pause()
            return f"{group} is paused"
        found.resume()
        return f"{group} goes on"

    def _group(self, name: str) -> Group:
        from pxrs_ray.actors.client.group import Group

        return Group(self._topology.name, name)

    def _produce(self, queue: str, value: Any) -> str:
        if not isinstance(value, dict) or not isinstance(value.get("payload"), str):
            raise UsageError("a message has a payload, and may have a key")
        with self._topology.producer(queue) as producer:
            sent = producer.send(value.get("key") or None, value["payload"]).result(10)
        return f"the message is in {queue}, P{sent.partition}@{sent.offset}"


def _seek(group: Group, action: str, value: Any) -> str:
    """Move, or say what that would do. A text is a place of all partitions."""
    from pxrs_ray.cli._options import partition_number
    from pxrs_ray.cli.seek import place

    asked = value if isinstance(value, dict) else {"to": value}
    try:
        to = place(str(asked.get("to", "")))
        only = [partition_number(str(asked["partition"]))] if asked.get("partition") else None
    except typer.BadParameter as error:
        raise UsageError(str(error)) from None
    which = "all partitions" if only is None else f"P{only[0]}"
    if action == "plan_seek":
        plan = group.plan_seek(to, only)
        return (
            f"Move {which} of {group.name} to {asked['to']}? {plan.repeats:,} messages come again, "
            f"{plan.skips:,} are skipped."
        )
    moved = group.seek(to, only)
    return f"{len(moved)} partitions of {group.name} were moved to {asked['to']}"


def _letter(value: Any) -> Any:
    from pxrs_ray.cli.dead_letters import place

    try:
        return place(str(value))
    except (PxrsError, typer.BadParameter) as error:
        raise UsageError(str(error)) from None


def _plain(message: Message) -> dict[str, Any]:
    from pxrs_ray.cli._show import text_of

    return {
        "partition": message.partition,
        "offset": message.offset,
        "at_ms": message.timestamp_ms,
        "key": None if message.key is None else text_of(message.key)[:TEXT_CHARS_MAX],
        "payload": text_of(message.payload)[:TEXT_CHARS_MAX],
        "headers": {name: text_of(value)[:TEXT_CHARS_MAX] for name, value in message.headers},
    }
