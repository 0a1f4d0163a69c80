"""Groups and queues are made and removed while coordinators die between every two steps.

Rules of this file. The steps are those that ship (`make_group`, `finish_removals`, ...), taken one
after another by one coordinator. It dies before a step, or after it; a write of a dead one comes
late, and is done where its generation still counts. Writes whose answer is lost are made again;
buffers are away. An operator asks the next coordinator again until it is answered. What is promised
is judged by what operators and members saw.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import BufferAway, DeadlineExceeded
from pxrs_ray.group import seeking
from pxrs_ray.group.seek_plan import LogBounds, Sought
from pxrs_ray.model import PartitionRow
from pxrs_ray.steps import Do, Steps
from pxrs_ray.topology import group_making as making
from pxrs_ray.topology import removing
from tests.simulation.topology_lives import CALLS_OF_LIVES, OF_APPLYING, OF_START, TopologyLives
from tests.simulation.topology_state import GROUPS, PARTITIONS, QUEUES, Died, Kept, Seen

COMMANDS, TRIES_MAX = 40, 200


class TopologyWorld(TopologyLives):
    """One topology, its buffers, and one coordinator after another."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dice = random.Random(f"topology {seed}")
        self.kept, self.seen = Kept(queues=set(QUEUES)), Seen()
        # What the logs hold: how many messages, and which epochs of which groups they have seen.
        self.logs: dict[str, list[int]] = {queue: [0] * PARTITIONS for queue in QUEUES}
        self.claims: dict[str, dict[str, dict[int, int]]] = defaultdict(dict)
        self.chance_of_death = self.dice.choice((0.02, 0.1, 0.25))
        self.chance_of_trouble = self.dice.choice((0.0, 0.1))
        self.late: list[Callable[[], None]] = []
        # Of this group no member works now.
        self.still = ""
        self.calm = False
        self._begin()

    # --- lives ------------------------------------------------------------------------------------

    def _finish(self, before: tuple[str, ...] = ()) -> None:
        try:
            self._carry(removing.finish_removals(self.kept.ends), "")
        except (BufferAway, DeadlineExceeded) as error:
            if removing.is_in_the_way(error, self.kept.ends, before):
                raise

    def _carry(self, steps: Steps[Any], group: str, queue: str = "") -> Any:
        """Take steps, one after another; the coordinator dies at some."""
        answer: Any = None
        try:
            what = next(steps)
            while True:
                try:
                    answer = self._do(what, group, queue)
                except BufferAway as error:
                    what = steps.throw(error)
                else:
                    what = steps.send(answer)
        except StopIteration as end:
            return end.value

    def _do(self, what: Do[Any], group: str, queue: str) -> Any:
        self.seen.steps += 1
        self._meanwhile()
        make = partial(self._made, what, group, queue)
        if isinstance(what, removing.RemoveRows):
            # It is made under the generation of the group that was read before.
            make = partial(make, read=self.kept.generations.get(what.group, -1))
        trouble = 0.0 if self.calm else self.chance_of_trouble
        if self._dies(what):
            if isinstance(what, removing.RemoveRows) and self.dice.random() < 0.5:
                self.late.append(make)  # it has left the process, and comes in some time
            raise Died
        if self.dice.random() < trouble and isinstance(what, OF_BUFFERS):
            if self.dice.random() < 0.5:
                make()
            raise BufferAway("a buffer is away")
        answer = make()
        if self.dice.random() < trouble and not isinstance(what, removing.CloseGroup):
            answer = make()  # its answer was lost, and it is made again as it stands
        if self._dies(what):
            raise Died
        return answer

    def _dies(self, what: Do[Any]) -> bool:
        # A start has many steps, and is to come to an end at some time.
        often = self.chance_of_death * (0.1 if isinstance(what, OF_START) else 1.0)
        died = not self.calm and self.dice.random() < often
        self.seen.deaths += died
        return died

    def _meanwhile(self) -> None:
        """Messages come, members join and commit, and what is late comes in."""
        dice = self.dice
        for queue in self.logs:
            self.logs[queue][dice.randrange(PARTITIONS)] += dice.choice((0, 1, 3))
        if self.late and dice.random() < 0.4:
            self.late.pop(dice.randrange(len(self.late)))()
        for group in sorted(self.led & self.kept.listed):
            if group != self.still and dice.random() < 0.3:
                self._work(group)
            if group in self.kept.rows and self.kept.groups.get(group) in self.logs:
                self.tell(group, lost=dice.random() < 0.3)

    def _work(self, group: str) -> None:
        """A member is granted a partition, and commits what it has done."""
        kept, partition = self.kept, self.dice.randrange(PARTITIONS)
        rows, queue = kept.rows.get(group), kept.groups.get(group)
        if rows is None or queue not in self.logs:
            return
        row = rows[partition]
        epoch = row.epoch + 1
        if self.seen.granted.get((group, partition), 0) >= epoch:
            self.seen.broken.append(f"epoch {epoch} of {group}/{partition} is given out again")
        self.seen.granted[group, partition] = epoch
        checkpoint = max(row.checkpoint, self.dice.randint(0, self.logs[queue][partition]))
        rows[partition] = PartitionRow(partition, epoch=epoch, checkpoint=checkpoint)
        self.claims[queue].setdefault(group, {})[partition] = epoch
        self.seen.committed.setdefault(group, {})[partition] = checkpoint

    # --- what is done -----------------------------------------------------------------------------

    def _made(self, what: Do[Any], group: str, queue: str, read: int | None = None) -> Any:
        kept = self.kept
        match what:
            case removing.KeepEnds(ends):
                kept.ends = ends
            case removing.Unname(groups, queues):
                kept.groups = {g: q for g, q in kept.groups.items() if g not in groups}
                kept.queues -= set(queues)
            case removing.Unlist(gone):
                kept.listed.discard(gone)
            case removing.RemoveRows(gone):
                if read is None or read == kept.generations.get(gone):
                    kept.rows.pop(gone, None)
                    kept.generations.pop(gone, None)
            case removing.NoteLife(name, life):
                kept.lives[name] = life
            case removing.ForgetGroup(gone):
                kept.noted.pop(gone, None)
            case removing.CloseGroup(gone):
                return self._close(gone)
            case removing.DropGroup(name, gone):
                self.claims[name].pop(gone, None)
                self.passed[name].pop(gone, None)
            case removing.DropQueue(name):
                self.logs.pop(name, None)
                self.claims.pop(name, None)
                self.passed.pop(name, None)
            case removing.DropTenants() | removing.ForgetHome() | removing.EndConsumers():
                pass
            case _:
                return self._made_of_group(what, group, queue)
        return None

    def _made_of_group(self, what: Do[Any], group: str, queue: str) -> Any:
        kept = self.kept
        match what:
            case making.ReadEnds():
                return {
                    p: LogEnds(p, 0, end, end, 0, 0, 0, 0) for p, end in enumerate(self.logs[queue])
                }
            case making.ReadFences():
                return dict(self.claims[queue].get(group, {}))
            case making.MakeRows(rows, generation):
                if group not in kept.rows:
                    kept.rows[group], kept.generations[group] = dict(rows), generation
            case making.LeadGroup():
                self._lead(group)
                return making.Found(tuple(kept.rows[group].values()), has_members=False)
            case making.MoveTo(offsets):
                for p, offset in offsets.items():
                    kept.rows[group][p] = PartitionRow(
                        p, epoch=kept.rows[group][p].epoch + 1, checkpoint=offset
                    )
            case seeking.ReadCheckpoints():
                return {p: row.checkpoint for p, row in kept.rows[group].items()}
            case seeking.ReadBounds():
                return {p: LogBounds(0, end) for p, end in enumerate(self.logs[queue])}
            case seeking.MoveCheckpoints(offsets):
                for p, offset in offsets.items():
                    epoch = kept.rows[group][p].epoch + 1
                    kept.rows[group][p] = PartitionRow(p, epoch=epoch, checkpoint=offset)
            case seeking.AwaitMoved():
                pass
            case making.RaiseTo(epochs):
                for p, epoch in epochs.items():
                    row = kept.rows[group][p]
                    kept.rows[group][p] = PartitionRow(p, epoch=epoch, checkpoint=row.checkpoint)
            case making.KeepConfig():
                kept.groups[group] = queue
            case making.ListGroup():
                kept.listed.add(group)
            case making.GoOn():
                self.goes_on(group)
            case _ if isinstance(what, OF_START):
                return self._made_at_start(what)
            case _ if isinstance(what, OF_APPLYING):
                self._made_to_apply(what)
            case _:
                raise AssertionError(what)
        return None

    def _lead(self, group: str) -> None:
        self.kept.generations[group] += 1
        self.kept.noted[group] = self.kept.generations[group]

    def _close(self, group: str) -> removing.GivenOut:
        self.led.discard(group)
        rows, generation = self.kept.rows[group], self.kept.generations[group]
        return removing.GivenOut(max(row.epoch for row in rows.values()) + 1, generation)

    # --- what operators ask -----------------------------------------------------------------------

    def ask(self, command: Callable[[], None]) -> None:
        """Ask, again of the next coordinator, until it is answered."""
        for _ in range(TRIES_MAX):
            try:
                command()
            except Died:
                self._begin()
            except (BufferAway, DeadlineExceeded):
                pass
            else:
                return
        raise AssertionError("nobody answers")

    def make(self, group: str, queue: str, at_end: bool) -> None:
        """Have a group made, unless it is there."""
        kept = self.kept
        if group in self.led:
            return
        self._finish((group, queue))
        kept.queues.add(queue)
        self.logs.setdefault(queue, [0] * PARTITIONS)
        before = list(self.logs[queue])
        floor = making.Floor(kept.ends.epoch, max(kept.ends.generation, kept.noted.get(group, 0)))
        new = making.NewGroup(group, queue, PARTITIONS, at_end, floor)
        self._carry(making.make_group(new), group, queue)
        self.led.add(group)
        begun = {p: row.checkpoint for p, row in kept.rows[group].items()}
        worked = self.seen.committed.get(group)
        if not worked and any(begun[p] < (before[p] if at_end else 0) for p in begun):
            self.seen.broken.append(f"{group} begins at {begun}, and its queue ended at {before}")

    def seek(self, group: str, begins: dict[int, int], shift: int) -> None:
        """Have a group moved by so many messages, from where it was seen."""
        queue = self.kept.groups[group]
        of = seeking.SoughtGroup(group, queue, PARTITIONS)
        sought = Sought("shift", shift, begins=begins)
        self._carry(seeking.seek_steps(of, sought), group, queue)

    def delete_group(self, group: str) -> None:
        """Have a group removed; one that is not there is success."""
        ends, kept = self.kept.ends, self.kept
        if group in kept.groups:
            queues = (kept.groups[group],)
            self._carry(
                removing.begin_group_end(ends, group, queues, known=group in self.led), group
            )
        elif group not in ends.groups:
            for queue in kept.queues:
                self.claims[queue].pop(group, None)
        self._carry(removing.finish_removals(self.kept.ends), "")

    def delete_queue(self, queue: str) -> None:
        """Have a queue removed with the groups that read it."""
        if queue in self.kept.queues:
            for group, reads in list(self.kept.groups.items()):
                if reads == queue:
                    self.delete_group(group)
            life = max(self.kept.ends.life(queue), self.kept.lives.get(queue, 0))
            self._carry(removing.begin_queue_end(self.kept.ends, queue, life), "")
        self._carry(removing.finish_removals(self.kept.ends), "")

    # --- one run ----------------------------------------------------------------------------------

    def play(self) -> list[str]:
        """Commands under trouble, then rest; every promise that was broken."""
        for _ in range(COMMANDS):
            group, queue = self.dice.choice(GROUPS), self.dice.choice(QUEUES)
            what = self.dice.choice(("make", "make", "seek", "delete", "delete queue", "apply"))
            self._command(what, group, queue)
            self._judge()
        self.calm = True
        for late in self.late:
            late()
        self._begin()
        self._judge()
        self._judge_rest()
        return self.seen.broken

    def _command(self, what: str, group: str, queue: str) -> None:
        kept, seen = self.kept, self.seen
        if what == "make":
            queue = kept.groups.get(group, queue)
            self.ask(lambda: self.make(group, queue, at_end=self.dice.random() < 0.5))
            seen.there[group] = True
        elif what == "seek":
            self._seek(group)
        elif what == "apply":
            wanted = kept.version + 1
            self.ask(lambda: self.apply(wanted))
            self.judge_applied(wanted)
        elif what == "delete":
            self.ask(lambda: self.delete_group(group))
            self._gone(group)
        else:
            readers = [g for g, reads in deepcopy(kept.groups).items() if reads == queue]
            self.ask(lambda: self.delete_queue(queue))
            for each in readers:
                self._gone(each)
            if queue in self.logs or queue in kept.queues:
                seen.broken.append(f"queue {queue} is deleted, and there")

    def _seek(self, group: str) -> None:
        """Somebody who has stopped the members moves a group; asked again, it is moved once."""
        if group not in self.led:
            return
        begins = {p: row.checkpoint for p, row in self.kept.rows[group].items()}
        ends, shift = list(self.logs[self.kept.groups[group]]), self.dice.choice((-7, -2, 2, 5))
        self.still = group
        self.ask(lambda: self.seek(group, begins, shift))
        self.still = ""
        found = {p: row.checkpoint for p, row in self.kept.rows[group].items()}
        for p, begin in begins.items():
            wanted = max(0, begin + shift)
            if found[p] != wanted and not (wanted > ends[p] <= found[p] <= wanted):
                self.seen.broken.append(f"{group}/{p} was moved by {shift}: {begin} to {found[p]}")
        self.seen.committed[group] = found

    def _gone(self, group: str) -> None:
        self.seen.there[group] = False
        self.seen.committed.pop(group, None)

    def _judge(self) -> None:
        kept, seen = self.kept, self.seen
        self.judge_told()
        for group, there in seen.there.items():
            found = (group in kept.listed, group in kept.groups, group in kept.rows)
            if (there and not all(found)) or (not there and any((*found, group in self.led))):
                seen.broken.append(f"{group}: there should be {there}, and found {found}")
            elif there and group not in self.led:
                seen.broken.append(f"{group} is there, and nobody leads it")
            for p, checkpoint in seen.committed.get(group, {}).items() if there else ():
                if kept.rows.get(group, {}).get(p, PartitionRow(p)).checkpoint < checkpoint:
                    seen.broken.append(f"{group}/{p}: {checkpoint} was committed, and is not there")

    def _judge_rest(self) -> None:
        kept, broken = self.kept, self.seen.broken
        if kept.ends.groups or kept.ends.queues:
            broken.append(f"what goes never goes: {kept.ends}")
        claimed = {group for groups in self.claims.values() for group in groups}
        if claimed - kept.listed:
            broken.append(f"logs wait for {claimed - kept.listed}, which is gone")


OF_BUFFERS = (
    removing.DropGroup,
    removing.DropQueue,
    making.ReadEnds,
    making.ReadFences,
    making.GoOn,
    seeking.ReadBounds,
    *CALLS_OF_LIVES,
)


def iter_of(what: Do[Any]) -> Steps[None]:
    """Steps of one."""
    yield what


def run(seed: int) -> tuple[list[str], Seen]:
    """One run; every promise that was broken, and what was seen."""
    world = TopologyWorld(seed)
    return world.play(), world.seen
