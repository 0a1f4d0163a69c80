"""Drive a `WorkScheduler` on a clock of its own: handlers are scripts of durations and outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from pxrs_ray.processing.scheduler import Item, Task, Work, WorkScheduler

# What the handler does with (offset, attempt): how long it takes, and its error if it fails.
Script = Callable[[int, int], tuple[int, str | None]]


@dataclass
class Ran:
    """What happened: (begin, offset, attempt) of each call, and when each kind of work ended."""

    begun: list[tuple[int, int, int]] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    parked: list[int] = field(default_factory=list)
    now_ms: int = 0


def drive(
    scheduler: WorkScheduler,
    items: Sequence[Item],
    script: Script,
    room: int = 10_000,
    until_ms: int = 10**9,
    check: Callable[[WorkScheduler], None] = lambda _: None,
) -> Ran:
    """Run until nothing is left to do, or `until_ms`; calls that are late run on beside the rest.

    Offers as the scheduler has room. Everything that falls on one moment happens in a fixed order:
    calls end first, then time runs out, then new calls begin.
    """
    ran, attempts, waiting = Ran(), dict[int, int](), list(reversed(items))
    running: list[tuple[int, int, Task, str | None]] = []
    count = busy = 0
    while ran.now_ms < until_ms:
        while running and running[0][0] <= ran.now_ms:
            _, _, task, error = heappop(running)
            busy -= not task.over
            if not task.over:
                ran.ended.append((ran.now_ms, task.item.offset))
            scheduler.ended(task, error, ran.now_ms)
            check(scheduler)
        late = scheduler.expire(ran.now_ms)
        busy -= sum(task.over for task in late)
        while waiting and scheduler.has_room():
            scheduler.offer([waiting.pop()])
        for task in scheduler.take(ran.now_ms, room - busy):
            busy += 1
            count += 1
            took, error = 0, None
            offset = task.item.offset
            if task.work is Work.HANDLE:
                attempts[offset] = attempts.get(offset, 0) + 1
                took, error = script(offset, attempts[offset])
                ran.begun.append((ran.now_ms, offset, attempts[offset]))
            elif task.work is Work.GIVE_UP:
                ran.given_up.append(offset)
            else:
                ran.parked.extend(item.offset for item in task.items)
            heappush(running, (ran.now_ms + took, count, task, error))
        check(scheduler)
        moments = [at for at, _, task, _ in running if not task.over]
        due_ms = scheduler.due_ms()
        if due_ms is not None:
            moments.append(due_ms)
        if not moments:
            break
        ran.now_ms = max(ran.now_ms, min(moments))
    return ran
