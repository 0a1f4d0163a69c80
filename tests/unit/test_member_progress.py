"""When a member commits: who may leave it at a commit that is wanted already."""

from __future__ import annotations

from typing import Any, cast

from pxrs_ray.consumer.member_effects import MemberEffect
from pxrs_ray.consumer.member_progress import MemberProgress
from pxrs_ray.group.events import Commit, PartitionProgress
from pxrs_ray.model import Progress

ROW = PartitionProgress(0, 1, Progress(5))
INTERVAL_S = 10.0


class Session:
    """Notes at each look at what is done whether a commit was still shown as wanted."""

    member, incarnation, at_rest = "m", 1, False

    def __init__(self, progress: MemberProgress) -> None:
        self._progress = progress
        self.shown: list[bool] = []

    def to_commit(self) -> tuple[PartitionProgress, ...]:
        self.shown.append(self._progress.commit_is_wanted)
        return (ROW,)


def test_who_sees_that_a_commit_is_wanted_has_its_work_in_that_commit() -> None:
    effects: list[MemberEffect] = []
    progress = MemberProgress(effects.append)
    session: Any = Session(progress)

    def committed(now_s: float) -> bool:
        return isinstance(progress.next_commit(session, INTERVAL_S, False, now_s), Commit)

    assert committed(0.0)
    progress.committed(INTERVAL_S, 0.0)
    assert not progress.commit_is_wanted and not committed(1.0), "the interval lasts"
    progress.commit_soon()
    assert progress.commit_is_wanted
    assert committed(1.0) and not progress.commit_is_wanted
    progress.commit_soon()
    assert progress.commit_is_wanted, "this one is under way, and has looked"
    progress.committed(INTERVAL_S, 1.0)
    assert committed(1.0), "so another one follows at once"
    assert session.shown == [False] * 3
    assert cast(int, progress.rounds) == 2
