"""Guards of what works messages in a consumer's room: the simulator runs these machines."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_PULLED = "consumer/pulled_positions.py"
_ROSTER = "consumer/worker_roster.py"
_QUEUE = "consumer/work_queue.py"
_ORDER = "processing/in_order.py"
_GATE = "processing/alone_gate.py"
_LIFE = "producer/life_start.py"
PULLED = ("pulling=1", "consumer_crash=8")
GAPS = ("pulling=1", "worn=1", "power_cut=20", "log_restart=8", "lanes=0")
ACTORS = ("pulling=0", "deadly=0")
ORDERED = ("pulling=0", "lanes=0", "deadly=0")
DEADLY = ("pulling=0", "deadly=1", "attempts_max=3", "consumer_crash=5")
LIVES = ("producer_crash=30",)


def _one(
    guard: str, file: str, text: str, instead: str, seen_by: str, *settings: str, note: str = ""
) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), (seen_by,), settings, note)


_SOURCE = "consumer/source_plan.py"
_READERS = ("tests/simulation/test_sources.py",)


def _reader(guard: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change(_SOURCE, text, instead),), tests=_READERS)


def _redriven(guard: str, text: str, instead: str) -> Mutation:
    change = Change("processing/redrive.py", text, instead)
    return Mutation(guard, (change,), tests=("tests/simulation/test_quarantine.py",))


WORKING = (
    _one(
        "what a pulling caller took is done when it says so, not before",
        _PULLED,
        "        return Progress(position.done)\n",
        "        return Progress(position.taken)\n",
        "CheckpointsCovered",
        *PULLED,
        "lanes=0",
    ),
    _one(
        "what is in a pulling caller's hands is not handed back",
        _PULLED,
        "if position.draining and (position.taken == position.done or self._closed)",
        "if position.draining",
        "DoneOnce",
        *PULLED,
        "lanes=0",
        "join=10",
    ),
    _one(
        "a gap right behind what a pulling caller has done is done",
        _PULLED,
        "        if offset >= self.given:\n            self.done = self.taken\n        else:\n"
        "            self.done = max(self.done, offset)\n",
        "        self.done = min(max(self.done, offset), self.taken)\n",
        "ComesToRest",
        *GAPS,
    ),
    _one(
        "what came under another epoch is given to no pulling caller",
        _PULLED,
        "            position = self._of(partition, epoch)\n            if position is None or",
        "            position = self._positions.get(partition)\n            if position is None or",
        "InOrder",
        *PULLED,
        "lanes=0",
        "hang=10",
    ),
    _one(
        "a life of a producer begins above every life that the buffer knows",
        _LIFE,
        "self.number, self.left = newest + 1, frozenset(range(self._buffers))",
        "self.left = frozenset()",
        "NothingFails",
        *LIVES,
    ),
    Mutation(
        "two lives that begin with one number are told apart",
        (
            Change(
                _LIFE,
                "return told.token == self.token and told.number == self.number",
                "return told.number == self.number",
            ),
        ),
        ("NothingFails", "AppendedOnce"),
        LIVES,
    ),
    _one(
        "a partition that rests after a fault begins again",
        _ROSTER,
        "        self._shell.rest(partition, epoch, pause_s, failure)\n",
        "",
        "ComesToRest",
        *ACTORS,
        "assigned_fails=0.1",
    ),
    _one(
        "a partition whose worker has ended is handed back",
        _ROSTER,
        "        owner.stopped(partition, epoch)\n        if newest:\n",
        "        if newest:\n",
        "ComesToRest",
        *ACTORS,
        "join=10",
        "revoke_deadline_ms=300000",
    ),
    _one(
        "a partition that rests is handed back when it goes",
        _ROSTER,
        "        if epoch is not None:\n            owner.stopped(partition, epoch)\n",
        "",
        "ComesToRest",
        *ACTORS,
        "join=15",
        "leave=10",
        "revoke_deadline_ms=300000",
        "assigned_fails=0.4",
    ),
    _one(
        "a worker that was full says that there is room again",
        _QUEUE,
        "has_room = self._was_full and self.queued_bytes < self.bytes_max",
        "has_room = False",
        "ComesToRest",
        *ACTORS,
        "consumer_crash=0",
    ),
    _one(
        "a message that fails is tried again before any other",
        _ORDER,
        "        elif to < self._end:\n            self._apart = to\n",
        "        elif to < self._end:\n            self._apart = to\n"
        "        if error is not None and to + 1 < self._end:\n"
        "            self.next_offset = to + 1\n",
        "NothingLost",
        *ORDERED,
        "batches=0",
    ),
    _one(
        "what is given up is as good as done, and only then",
        _ORDER,
        "        self._not_kept += 1\n",
        "        self.kept()\n        return\n        self._not_kept += 1\n",
        "NothingLost",
        *ORDERED,
        "attempts_max=1",
    ),
    _one(
        "what follows a failure is what its policy says after so many",
        _ORDER,
        "verdict = after_failure(self._rules, self.attempts)",
        "verdict = after_failure(self._rules, self.attempts + 1)",
        "PutAsideForCause",
        *ORDERED,
        "attempts_max=2",
    ),
    _one(
        "attempts belong to the message that has failed",
        _ORDER,
        "        self._suspect, self._not_kept, self.attempts = None, 0, 0\n",
        "        self._suspect, self._not_kept = None, 0\n",
        "PutAsideForCause",
        *ORDERED,
        "attempts_max=2",
    ),
    _one(
        "what kills its process meets its policy in the end",
        _ORDER,
        "if suspect.is_doomed(self.attempts, self._rules.attempts_max):",
        "if False:",
        "ComesToRest",
        *DEADLY,
        "lanes=0",
    ),
    _one(
        "a death in company counts against nobody, also in the simulator",
        "processing/suspects.py",
        "alone = len(death.calls) == 1 and end - first == 1",
        "alone = end - first == 1",
        "PutAsideForCause",
        "pulling=0",
        "deadly=1",
        "attempts_max=1",
        "consumer_crash=10",
        "death_noticed=1",
    ),
    _reader(
        "what a source brings when the lease is over is handed on to nobody",
        "if not records or is_over:",
        "if not records:",
    ),
    _reader(
        "every reader of a source says alike whose a record without a key is",
        'key = b"%d" % record.offset if record.key is None else record.key',
        'key = b"%d" % len(split) if record.key is None else record.key',
    ),
    _reader(
        "a partition passes what a source has for others",
        "    if end > at and session.skip(partition, epoch, at, end):",
        "    if False:",
    ),
    _reader(
        "a source is read from the lowest position that anybody waits for",
        "min(offset for _, offset in positions.values())",
        "max(offset for _, offset in positions.values())",
    ),
    _redriven(
        "what waits behind a key is given again before the key flows",
        "            elif aside.first is None:\n",
        "            elif aside.first is None or self._failed:\n",
    ),
    _redriven(
        "a new owner parks what a former one has put aside",
        "return {key for key in self._state.keys if key is not None}",
        "return set()",
    ),
    _redriven(
        "what was given again and worked is noted at its own place",
        '{"position": step.entry.position})\n\n    def failed',
        '{"position": step.entry.offset})\n\n    def failed',
    ),
)
