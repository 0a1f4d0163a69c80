"""What transcripts are played on: a coordinator or two, a store, a log's fence, and members.

Rules of this file. Whatever can leave a coordinator leaves at once and in order; nothing is lost,
late or doubled but by command. Members do only what a command says, except that those that are
not frozen send heartbeats while time passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.errors import CoordinatorDeposed, Fenced, PxrsError, StoreUnavailable
from pxrs_ray.group.events import (
    Assignment,
    AssignmentChanged,
    Commit,
    Decision,
    Died,
    Dismiss,
    Event,
    FenceReaders,
    Heartbeat,
    Join,
    Leave,
    PartitionProgress,
    Release,
    Seek,
    Tick,
)
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.write_queue import WriteBatch, WriteQueue, check_stored
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.model import Member, MemberWrite, Outcome, Progress, Record
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.testing.faults import FaultyStore
from pxrs_ray.testing.manual_clock import ManualClock
from tests.settings import group_settings
from tests.works import Works

GROUP, QUEUE = "g", "q"
TICK_MS = 50


class FakeController:
    """One coordinator with its write queue, as the real shell runs it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        snapshot = stage.store.lead(GROUP, stage.partitions, "coordinator")
        self.core = GroupCoordinator(snapshot, stage.settings, stage.clock.now())
        self.queue = WriteQueue()
        self.deposed = False
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._retry: WriteBatch | None = None
        self.take(self.core.start(stage.clock.now()), None)

    def submit(self, event: Event, on_reply: Callable[[Decision], None] | None = None) -> None:
        """Decide `event`; tell what was decided, and what leaves."""
        if self.deposed:
            self.stage.say(f"coordinator {self.core.state.generation} has ended")
            return
        try:
            decision = self.core.handle(event, self.stage.clock.now())
        except PxrsError as refused:
            self.stage.say(f"refused: {type(refused).__name__}: {refused}")
            return
        self.take(decision, on_reply)

    def take(self, decision: Decision, on_reply: Callable[[Decision], None] | None) -> None:
        """Records first, then whatever waits for them."""
        for line in told_records(decision.records):
            self.stage.say(f"decide {line}")
        self.queue.push(decision.records)
        if on_reply is not None:
            self._waiting.append((decision.after, lambda: on_reply(decision)))
        if decision.effects:
            self._waiting.append((decision.after, lambda: self._carry_out(decision)))
        self.pump()

    def pump(self) -> None:
        """Write what waits, if the store answers, and let go of what is durable."""
        while (batch := self._retry or self.queue.take(100)) is not None:
            self._retry = None
            generation = self.core.state.generation
            try:
                outcomes = self.stage.store.write(GROUP, generation, batch.records)
                if any(outcome is not Outcome.APPLIED for outcome in outcomes):
                    check_stored(batch, self.stage.store.load(GROUP), generation)
            except StoreUnavailable:
                self._retry = batch
                break
            except CoordinatorDeposed as error:
                self.stage.say(f"deposed: {error}")
                self.deposed = True
                return
            self.queue.done()
        while self._waiting and self._waiting[0][0] <= self.queue.durable:
            self._waiting.popleft()[1]()

    def waiting(self) -> int:
        """How much has to wait for the store."""
        return len(self._waiting)

    def _carry_out(self, decision: Decision) -> None:
        for effect in decision.effects:
            match effect:
                case FenceReaders():
                    self.stage.fence.fence(QUEUE, GROUP, effect.epochs)
                case Dismiss():
                    how = "cleanly" if effect.clean else "as it is"
                    self.stage.say(
                        f"dismiss {effect.member}#{effect.incarnation} {how}: {effect.cause}"
                    )
                case AssignmentChanged():
                    self._tell(effect.member)

    def _tell(self, member: str) -> None:
        """What waits for the member's assignment gets the newest, when that is durable."""

        def tell() -> None:
            if member in self.core.state.members:
                self.stage.tell(self.core.assignment(member))

        if self.core.records_emitted <= self.queue.durable:
            tell()
        else:
            self._waiting.append((self.core.records_emitted, tell))


class Stage:
    """Interprets commands; `do` answers what came of one."""

    def __init__(self) -> None:
        self.clock = ManualClock(monotonic_ms=10_000)
        self.store = FaultyStore(MemoryStore(now_ms=lambda: self.clock.now().wall_ms), 1)
        self.sessions: dict[str, ConsumerSession] = {}
        self.works: dict[str, Works] = {}
        self.frozen: set[str] = set()
        self.controllers: list[FakeController] = []
        self.partitions = 4
        self.settings = group_settings()
        self._folder = TemporaryDirectory(prefix="pxrs-transcript-")
        self.fence = ReadFence(Path(self._folder.name, "fences"))
        self._said: list[str] = []

    def say(self, line: str) -> None:
        """Add a line to the output of the command."""
        self._said.append(line)

    def close(self) -> None:
        """Give the files back."""
        self.fence.close()
        self._folder.cleanup()

    def do(self, command: str) -> list[str]:
        """Carry out one command; the lines that came of it."""
        self._said = []
        verb, *words = command.split()
        via = self.controllers[-1] if self.controllers else None
        if verb == "via":
            number, verb, *words = words
            via = self.controllers[int(number) - 1]
        getattr(self, f"do_{verb}")(via, words)
        waiting = sum(
            controller.waiting() for controller in self.controllers if not controller.deposed
        )
        if waiting:
            self.say(f"(answers and assignments that wait for the store: {waiting})")
        return self._said or ["nothing"]

    # --- commands -------------------------------------------------------------------------------

    def do_group(self, _: FakeController | None, words: list[str]) -> None:
        """group partitions=4 lease=1000 revoke=500 assignor=sticky"""
        given = dict(word.split("=") for word in words)
        self.partitions = int(given.get("partitions", 4))
        self.settings = group_settings(
            assignor=given.get("assignor", "sticky"),
            lease_ms=int(given.get("lease", 1_000)),
            revoke_deadline_ms=int(given.get("revoke", 500)),
        )
        self.do_lead(None, [])

    def do_lead(self, _: FakeController | None, words: list[str]) -> None:
        """lead: one more coordinator takes over; the others do not know yet"""
        self.controllers.append(FakeController(self))
        self.say(f"coordinator {self.controllers[-1].core.state.generation} leads")

    def do_join(self, via: FakeController, words: list[str]) -> None:
        """join A B incarnation=2 grace=500 weight=2"""
        names, given = _split(words)
        incarnation = int(given.get("incarnation", 1))
        grace_ms, weight = int(given.get("grace", 0)), float(given.get("weight", 1))
        for name in names:
            self.sessions[name] = ConsumerSession(
                name, incarnation, self.works.setdefault(name, Works())
            )
            self.frozen.discard(name)
        via.submit(Join(tuple(Member(n, incarnation, weight, grace_ms) for n in names)))

    def do_leave(self, via: FakeController, words: list[str]) -> None:
        """leave A"""
        session = self.sessions[words[0]]
        via.submit(Leave(session.member, session.incarnation))

    def do_die(self, via: FakeController, words: list[str]) -> None:
        """die A: its process ends, and the coordinator is told"""
        session = self.sessions[words[0]]
        self.frozen.add(session.member)
        via.submit(Died(session.member, session.incarnation, "process ended"))

    def do_freeze(self, _: FakeController, words: list[str]) -> None:
        """freeze A: it neither hears nor says anything"""
        self.frozen.update(words)

    def do_thaw(self, _: FakeController, words: list[str]) -> None:
        """thaw A: it goes on with what it knew"""
        self.frozen.difference_update(words)

    def do_process(self, via: FakeController, words: list[str]) -> None:
        """process A 0=12 1=8: it reads and works up to there, and commits"""
        session = self.sessions[words[0]]
        _work(session, self.works[words[0]], words[1:])
        self._commit(via, session, session.to_commit())

    def do_commit(self, via: FakeController, words: list[str]) -> None:
        """commit A 0@5=11: exactly this, whatever it holds"""
        rows = []
        for word in words[1:]:
            place, checkpoint = word.split("=")
            partition, epoch = place.split("@")
            rows.append(PartitionProgress(int(partition), int(epoch), Progress(int(checkpoint))))
        self._commit(via, self.sessions[words[0]], tuple(rows))

    def _commit(
        self, via: FakeController, session: ConsumerSession, rows: tuple[PartitionProgress, ...]
    ) -> None:
        def answered(decision: Decision) -> None:
            assert decision.reply is not None
            for row, outcome in zip(rows, decision.reply.outcomes, strict=True):
                at = f"{row.partition}@{row.epoch}={row.progress.checkpoint}"
                self.say(f"{session.member}: {at} {outcome.value}")
            session.committed(rows, decision.reply.outcomes)

        via.submit(Commit(session.member, session.incarnation, rows), answered)

    def do_finish(self, via: FakeController, words: list[str]) -> None:
        """finish A 4=12: it ends what it is asked for, there, and hands it back"""
        session = self.sessions[words[0]]
        _work(session, self.works[words[0]], words[1:])
        for held in session.holdings.values():
            if held.draining:
                session.stopped(held.partition, held.epoch)
        rows = session.to_release()

        def answered(decision: Decision) -> None:
            assert decision.reply is not None
            told = ", ".join(
                f"{row.partition}@{row.epoch} {outcome.value}"
                for row, outcome in zip(rows, decision.reply.outcomes, strict=True)
            )
            self.say(f"{session.member}: released {told}")
            session.released(rows)

        via.submit(Release(session.member, session.incarnation, rows), answered)

    def do_heartbeat(self, via: FakeController, words: list[str]) -> None:
        """heartbeat A"""
        self._heartbeat(via, self.sessions[words[0]])

    def _heartbeat(self, via: FakeController, session: ConsumerSession) -> None:
        def answered(decision: Decision) -> None:
            assert decision.reply is not None
            if decision.reply.assignment is not None:
                self.tell(decision.reply.assignment)

        via.submit(Heartbeat(session.member, session.incarnation, session.seen), answered)

    def do_read(self, _: FakeController, words: list[str]) -> None:
        """read A 0: it fetches under the epoch that it believes in"""
        session, partition = self.sessions[words[0]], int(words[1])
        held = session.holdings.get(partition)
        if held is None:
            self.say(f"{words[0]} does not hold {partition}")
            return
        try:
            self.fence.check(QUEUE, GROUP, partition, held.epoch)
            self.say(f"served at epoch {held.epoch}, from {held.fetched}")
        except Fenced as refused:
            self.say(f"refused by the log: {refused}")

    def do_seek(self, via: FakeController, words: list[str]) -> None:
        """seek 0=7"""
        via.submit(Seek({int(p): int(o) for p, o in (word.split("=") for word in words)}))

    def do_store(self, _: FakeController, words: list[str]) -> None:
        """store down, store up"""
        self.store.down = words == ["down"]
        if not self.store.down:
            for controller in self.controllers:
                controller.pump()

    def do_pass(self, via: FakeController, words: list[str]) -> None:
        """pass 600: so many milliseconds go by"""
        end_ms = self.clock.now().monotonic_ms + int(words[0])
        passed = 0
        while self.clock.now().monotonic_ms < end_ms:
            self.clock.advance(TICK_MS)
            passed += TICK_MS
            if passed % (self.settings.lease_ms // 3 // TICK_MS * TICK_MS) == 0:
                for name, session in self.sessions.items():
                    slot = via.core.state.members.get(name)
                    known = slot is not None and slot.member.incarnation == session.incarnation
                    if known and name not in self.frozen:
                        self._heartbeat(via, session)
            via.submit(Tick())

    def do_status(self, via: FakeController, words: list[str]) -> None:
        """status: the stored rows"""
        self.store.down, down = False, self.store.down
        snapshot = self.store.load(GROUP)
        self.store.down = down
        assert snapshot is not None
        for row in snapshot.partitions:
            owner = f"{row.owner}#{row.incarnation}" if row.owner else "nobody"
            self.say(f"{row.partition} {owner} epoch {row.epoch} checkpoint {row.checkpoint}")

    # --- members --------------------------------------------------------------------------------

    def tell(self, assignment: Assignment) -> None:
        """An assignment reaches its member, unless that is frozen."""
        session = self.sessions.get(assignment.member)
        if session is None or session.member in self.frozen:
            return
        if assignment.incarnation != session.incarnation or session.seen >= (
            assignment.generation,
            assignment.sequence,
        ):
            return
        changes = session.assign(assignment)
        parts = [
            f"{grant.partition}@{grant.epoch} from {grant.checkpoint}" for grant in changes.started
        ]
        lines = [
            ("starts", ", ".join(parts)),
            ("finishes", ranges(changes.draining)),
            ("drops", ranges(changes.dropped)),
            ("is leaving", " " if assignment.leaving else ""),
        ]
        told = "; ".join(f"{what} {which}".strip() for what, which in lines if which)
        self.say(f"{assignment.member}: {told or 'nothing changes'}")


def _work(session: ConsumerSession, works: Works, words: Iterable[str]) -> None:
    """Read (unless it had been read before) and process up to where each word says."""
    for word in words:
        partition, end = map(int, word.split("="))
        held = session.holdings[partition]
        if end > held.fetched:
            held.fetched = end
            session._note_work(partition)  # what drains had been read before that
        works.come(partition, held.epoch, end)


def ranges(numbers: Iterable[int]) -> str:
    """0-3,5 for 0, 1, 2, 3 and 5."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


def told_records(records: Iterable[Record]) -> list[str]:
    """One line a record; alike ones of several partitions share a line."""
    lines: dict[str, list[int]] = {}
    for record in records:
        if isinstance(record, MemberWrite):
            lines[f"{record.kind} {record.member.member}#{record.member.incarnation}"] = []
            continue
        owner = f" {record.owner}#{record.incarnation}" if record.owner else ""
        cause = f" ({record.cause})" if record.cause else ""
        text = f"{record.kind.value} %s{owner} epoch {record.epoch} at {record.checkpoint}{cause}"
        lines.setdefault(text, []).append(record.partition)
    return [line.replace("%s", ranges(partitions)) for line, partitions in lines.items()]


def _split(words: list[str]) -> tuple[list[str], dict[str, str]]:
    names = [word for word in words if "=" not in word]
    return names, dict(word.split("=") for word in words if "=" in word)
