"""`TestTopology`: producers, queues, groups and a user's handlers in one process, without Ray.

    with TestTopology("shop.toml") as t:
        t.group("billing", charge)
        t.send("payments", "account-7", b"3")
        t.run_until_idle()
        assert [each.payload for each in t.delivered("billing")] == [b"3"]

Rules of this file. Nothing happens but in `run_until_idle` and `advance`; time passes only in
`advance` (and `take_over`, which waits for a lease). All of them may also be called by a handler,
in the middle of its message: what they do then happens while the handler runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pxrs_ray.closing import Closing
from pxrs_ray.config import PxrsConfig
from pxrs_ray.consumer.handler_shape import (
    HandlerShape,
    check_mode,
    check_shape,
    import_handler,
    shape_of,
)
from pxrs_ray.data.batch import Headers
from pxrs_ray.data.reply import Reply
from pxrs_ray.errors import DeadlineExceeded, NotFound, UsageError
from pxrs_ray.group.events import Seek
from pxrs_ray.group.replica_count import check_count
from pxrs_ray.model import Epoch, Message, Offset, PartitionId
from pxrs_ray.producer.receipt import Receipt
from pxrs_ray.testing.local.crashed import ConsumerCrashed
from pxrs_ray.testing.local.delayed import LocalDelays
from pxrs_ray.testing.local.failed_messages import GivenUpMessage
from pxrs_ray.testing.local.group import Delivered, LocalGroup
from pxrs_ray.testing.local.logs import LocalQueue
from pxrs_ray.testing.local.member import LocalMember
from pxrs_ray.testing.local.redriving import redrive
from pxrs_ray.testing.manual_clock import ManualClock

CALLS_MAX = 100_000
TOPOLOGY_ID = "test-topology"


class TestTopology(Closing):
    """See the rules at the head of this file, and docs/testing.md for what it is good for.

    `config` is a PxrsConfig, or the path of a topology file. Its stores, buffers and Ray options
    are not looked at: logs and registry are in memory.
    """

    __test__ = False  # for pytest: this is no test

    def __init__(self, config: PxrsConfig | str | Path) -> None:
        if not isinstance(config, PxrsConfig | str | Path):
            raise UsageError(
                "a test topology is made of a PxrsConfig, or of the path of a topology file, not "
                f"of {type(config).__name__}"
            )
        self.config = config if isinstance(config, PxrsConfig) else PxrsConfig.from_toml(config)
        self.clock = ManualClock(monotonic_ms=1_000_000)
        self._folder = tempfile.TemporaryDirectory(prefix="pxrs-test-topology-")
        self._queues: dict[str, LocalQueue] = {}
        self._groups: dict[str, LocalGroup] = {}
        self._running: list[LocalMember] = []
        self._delays = LocalDelays(self.clock, self._queue)
        self._closed = False

    def __repr__(self) -> str:
        groups = [f"{name} ({len(group.members)})" for name, group in self._groups.items()]
        told = "closed" if self._closed else f"groups (consumers): {', '.join(groups) or 'none'}"
        return f"<TestTopology {self.config.name!r}, {told}>"

    # --- what runs --------------------------------------------------------------------------------

    def group(
        self,
        name: str,
        handler: object | None = None,
        *,
        consumers: int | None = None,
        mode: str = "auto",
        **options: Any,
    ) -> Self:
        """Start the consumers of a group.

        `handler` is all that `Group.start` takes; left out, it is the one that the configuration
        names. `options` are options of the group (`queue=`, `attempts_max=`, ...), over those of
        the configuration. Each consumer makes its own object of a handler that is a class.
        """
        if consumers is not None:
            check_count(consumers)
        if name in self._groups:
            raise UsageError(f"group {name!r} runs already: `scale` changes its consumers")
        if options:
            self.config = self.config.changed(groups={name: options})
        config = self.config.resolved_group(name)
        wanted = handler if handler is not None else config.handler
        if wanted is None:
            raise UsageError(f"group {name!r} has no handler: give it one")
        check_mode(mode)
        found = import_handler(wanted) if isinstance(wanted, str) else wanted
        check_shape(found)
        dead_letters = config.dead_letter_queue if config.failure_policy == "dead_letter" else None

        def make() -> HandlerShape:
            return shape_of(found, mode, config.settings)

        made = self._groups[name] = LocalGroup(
            name,
            config,
            self._queue(config.queue),
            None if dead_letters is None else self._queue(dead_letters),
            self.clock,
            TOPOLOGY_ID,
            make,
            self._running,
        )
        if config.start == "end":
            made.queue.flush()
            ends = {p: made.queue.end(p) for p in range(made.queue.partitions)}
            made.ask(Seek({p: end for p, end in ends.items() if end}, "begins here"))
        made.add(config.consumers if consumers is None else consumers)
        return self

    def scale(self, group: str, consumers: int) -> None:
        """Have exactly this many consumers: others join, or the newest hand back and leave."""
        check_count(consumers)
        found = self._group(group)
        members = [member for member in found.members if not member.cut_off]
        if consumers > len(members):
            found.add(consumers - len(members))
        for member in members[consumers:]:
            found.leave(member)

    def send(
        self,
        queue: str,
        key: bytes | str | None,
        payload: bytes | str,
        headers: Headers = None,
        timestamp: int | None = None,
        id: str | None = None,  # noqa: A002 - the name that producers have for it
        *,
        scope: str | None = None,
        delay_s: float | None = None,
        deliver_at_ms: int | None = None,
    ) -> Receipt:
        """Send one message, as a producer's `send` does. It is in its log when something runs.

        What is sent in one go and falls into one partition is one batch. What is sent with a delay
        comes in `advance`. Raises MessageTooLarge, UsageError, NotFound.
        """
        found = self._queue(queue)
        if delay_s is not None or deliver_at_ms is not None:
            sent, due = (key, payload, id), (delay_s, deliver_at_ms)
            waits = self._delays.send(queue, found.config, sent, headers, timestamp, due)
            if waits is not None:
                return waits
        now = self.clock.now()
        return found.accumulator.add(key, payload, now, headers, timestamp, id, scope)

    def run_until_idle(self, *, fail_fast: bool = False, calls_max: int = CALLS_MAX) -> int:
        """Work until nothing can be done without time passing; answers how many calls that took.

        A message whose next attempt is later waits for `advance`, as does an interval commit.
        With `fail_fast` the first error of a handler is raised here. Raises DeadlineExceeded when
        `calls_max` calls were not enough: a handler that sends itself messages never comes to rest.
        """
        self._check_open()
        known = {name: len(group.errors) for name, group in self._groups.items()}
        for calls in range(calls_max):
            self._flush()
            if not self._step():
                return calls
            if fail_fast:
                for name, group in self._groups.items():
                    for error in group.errors[known.get(name, 0) :]:
                        raise error
        raise DeadlineExceeded(
            f"the topology is not idle after {calls_max:,} calls: does a handler send messages to "
            "itself? More calls are made with `calls_max=`"
        )

    def advance(self, seconds: float) -> None:
        """Let time pass, with all that becomes due in it: attempts, commits, leases, timeouts."""
        self._pass(round(seconds * 1_000), working=True)

    # --- what goes wrong --------------------------------------------------------------------------

    def crash(self, group: str, *, at_commit: bool = False, signal: int = 9) -> None:
        """Kill a consumer of the group, as SIGKILL does: what it has not committed comes again.

        In the middle of a handler it is that handler's consumer, and the call ends here; what was
        in its hands is counted as on Ray. Otherwise it is the oldest one. `at_commit` lets it live
        until it is about to commit. Another consumer comes in its place (option `respawn`).
        """
        found = self._group(group)
        member = self._one_of(found)
        if at_commit:
            member.crashes_at_commit = True
            return
        found.crash(member, "killed by the test", signal)
        if self._running and self._running[-1] is member:
            raise ConsumerCrashed
        found.settle()

    def take_over(self, group: str, *, noticed: bool = True) -> None:
        """Let another consumer take over, while the present one is frozen or cut off.

        In the middle of a handler that is the handler's consumer: the call goes on, and what it
        does counts no more. Its lease passes first, so that it can know (`context.holds()`); with
        `noticed=False` it was taken for dead by mistake, and has no way to know before it commits.
        `run_until_idle` lets the new owner work, also before the handler returns.
        """
        found = self._group(group)
        members = found.busy() or [m for m in found.members if not m.cut_off]
        found.cut_off(members, noticed=noticed)
        if noticed:
            self._pass(found.config.lease_ms + 1, working=False)
        found.settle()
        for member in members:
            if not member.calls:
                found.thaw(member)

    def retry(self, group: str, key: bytes | str | None = None) -> int:
        """Re-drive what is in quarantine, of one key or of all; answers how many went through."""
        wanted = key.encode() if isinstance(key, str) else key
        return redrive(self._group(group), wanted)

    # --- what happened ----------------------------------------------------------------------------

    def delivered(self, group: str) -> list[Delivered]:
        """Every message of every call of the handler, in the order in which the calls ended."""
        return list(self._group(group).delivered)

    def committed(self, group: str) -> dict[PartitionId, Offset]:
        """The checkpoint of each partition that has one: all below it is done, for good."""
        rows = self._group(group).core.state.rows
        return {row.partition: row.checkpoint for row in rows if row.checkpoint}

    def lag(self, group: str) -> int:
        """How many messages the group has not passed yet."""
        self._flush()
        found = self._group(group)
        return sum(found.queue.end(r.partition) - r.checkpoint for r in found.core.state.rows)

    def refused(self, group: str) -> list[tuple[PartitionId, Epoch, Offset]]:
        """Commits that were refused: (partition, epoch, checkpoint), of owners that were none."""
        return list(self._group(group).refused)

    def owners(self, group: str) -> Mapping[PartitionId, str | None]:
        """Who owns each partition."""
        return {row.partition: row.owner for row in self._group(group).core.state.rows}

    def dead_letters(self, group: str) -> list[Message]:
        """The group's dead letters, as they lie in their queue."""
        return self._group(group).failed.dead_letters()

    def given_up(self, group: str) -> list[GivenUpMessage]:
        """What is not tried again, and what the failure policy made of it."""
        return list(self._group(group).failed.given_up)

    def quarantined(self, group: str) -> list[Message]:
        """What is put aside now, key by key, in order."""
        failed = self._group(group).failed
        return [entry.message for entries in failed.quarantine.values() for entry in entries]

    def reply_to(self, queue: str, message_id: str) -> Reply | None:
        """What a handler replied to a message of the queue; None: nobody has yet."""
        return self._queue(queue).replies.get(message_id)

    def messages(self, queue: str) -> list[Message]:
        """Everything that is in a queue, partition by partition."""
        self._flush()
        return list(self._queue(queue).messages())

    # --- inside -----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this test topology is closed")

    def _queue(self, name: str) -> LocalQueue:
        self._check_open()
        found = self._queues.get(name)
        if found is None:
            folder = Path(self._folder.name) / str(len(self._queues))
            found = self._queues[name] = LocalQueue(name, self.config, folder, self.clock)
        return found

    def _group(self, name: str) -> LocalGroup:
        self._check_open()
        found = self._groups.get(name)
        if found is None:
            raise NotFound(f"group {name!r} does not run: `group({name!r}, handler)` starts it")
        return found

    def _one_of(self, group: LocalGroup) -> LocalMember:
        """Whose handler runs, the innermost one, or else the oldest."""
        busy = [member for member in self._running if member.group is group and not member.ended]
        there = [member for member in group.members if not member.cut_off]
        if not busy and not there:
            raise NotFound(f"group {group.name!r} has no consumer")
        return busy[-1] if busy else there[0]

    def _flush(self) -> None:
        self._delays.flush()
        for queue in list(self._queues.values()):
            queue.flush()

    def _step(self) -> bool:
        """Let every group do its next thing; False when none has one."""
        did = False
        for group in list(self._groups.values()):
            did = group.step() or did
        return did

    def _pass(self, ms: int, *, working: bool) -> None:
        if ms < 0:
            raise UsageError("time never runs backwards")
        end_ms = self.clock.now().monotonic_ms + ms
        if working:
            self.run_until_idle()
        while (now_ms := self.clock.now().monotonic_ms) < end_ms:
            moments = [group.next_ms() for group in self._groups.values()]
            moments += [queue.next_look_ms() for queue in self._queues.values()]
            moments.append(self._delays.next_ms())
            due = [m for m in moments if m is not None and m > now_ms]
            self.clock.advance(min([end_ms, *due]) - now_ms)
            for group in list(self._groups.values()):
                group.time_has_passed()
            if working:
                self.run_until_idle()

    def close(self) -> None:
        """End every consumer (`on_revoked` and `close` of handlers are called), and tidy up."""
        if self._closed:
            return
        try:
            for group in self._groups.values():
                group.close()
        finally:
            self._closed = True
            for queue in self._queues.values():
                queue.close()
            self._folder.cleanup()
