"""Guards of a member's machine: each is one line of what ships, and the simulator runs that."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_MEMBER = "consumer/member_machine.py"
_PROGRESS = "consumer/member_progress.py"
_PLAN = "consumer/fetch_plan.py"
SILENT_MEMBERS = ("consumer_freeze=10", "consumer_cut=10")
FALSE_DEATHS = ("false_death=15", "slow=0.3")
# What is never handed back is never taken away in these either.
PATIENT = ("revoke_deadline_ms=300000", "join=10", "hang=0", "consumer_crash=0")


def _one(
    guard: str, file: str, text: str, instead: str, seen_by: str, *settings: str, note: str = ""
) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), (seen_by,), settings, note)


MEMBER = (
    Mutation(
        "who sees that a commit is wanted has its work in that commit",
        (
            Change(
                _PROGRESS,
                "self._in_round, self._commit_wanted = True, False\n"
                "            rows = session.to_commit()\n",
                "self._in_round = True\n"
                "            rows = session.to_commit()\n"
                "            self._commit_wanted = False\n",
            ),
        ),
        tests=("tests/unit/test_member_progress.py",),
    ),
    _one(
        "nothing is committed when the lease is over",
        _PROGRESS,
        "return Rest() if is_over else Commit(",
        "return Commit(",
        "LeaseBinds",
        *SILENT_MEMBERS,
    ),
    Mutation(
        "nothing is released when the lease is over",
        (
            Change(
                _PROGRESS,
                "        if is_over:\n            return Rest()\n        return Release(",
                "        return Release(",
            ),
            Change(
                "group/member_lease.py",
                "return min(MEMBER_WAIT_S, self.until_s - now_s)",
                "return MEMBER_WAIT_S",
            ),
        ),
        ("LeaseBinds",),
        (*SILENT_MEMBERS, "join=10"),
        note="whoever carries it would be told that there is no time left: both are taken away",
    ),
    _one(
        "nothing is read when the lease is over",
        _PLAN,
        "        if is_over:\n            return Rest()",
        "        pass",
        "LeaseBinds",
        *SILENT_MEMBERS,
    ),
    Mutation(
        "what a lease allows is asked again no longer than it lasts",
        (
            Change(
                "group/member_lease.py",
                "return min(MEMBER_WAIT_S, self.until_s - now_s)",
                "return MEMBER_WAIT_S",
            ),
        ),
        tests=(
            "tests/unit/test_member.py::"
            "test_a_commit_or_release_is_asked_again_no_longer_than_the_lease_lasts",
        ),
    ),
    _one(
        "what waits for the lease goes on when it is renewed",
        _MEMBER,
        "if was_over and not self.lease.is_over(now_s):",
        "if False:",
        "ComesToRest",
        *SILENT_MEMBERS,
    ),
    _one(
        "a release is repeated until it is answered",
        _PROGRESS,
        '"""It is made again."""\n        self._release_s = now_s + RELEASE_GATHER_S',
        '"""It is made again."""\n        self._release_s = None',
        "ComesToRest",
        *PATIENT,
        "lost=0.1",
    ),
    _one(
        "what stops while a release is under way is released next",
        _PROGRESS,
        "        self._release_s = now_s\n",
        "        self._release_s = None\n",
        "ComesToRest",
        *PATIENT,
    ),
    _one(
        "who lost its membership drops everything",
        _MEMBER,
        "self._effects.extend(DropWork(partition) for partition in lost.drop_all())",
        "lost.drop_all()",
        "NothingLost",
        *FALSE_DEATHS,
    ),
    Mutation(
        "an answer for a former session is ignored",
        (
            Change(
                _MEMBER,
                "return session is self.session and not self.lost and not self.ended",
                "return not self.lost and not self.ended",
            ),
        ),
        tests=("tests/unit/test_member_reading.py",),
        note="what comes late makes a lease no longer than it is: a run shows it too rarely",
    ),
    _one(
        "who joins again looks at everything again",
        _MEMBER,
        "for channel in range(self._channels):",
        "for channel in range(0):",
        "ComesToRest",
    ),
    _one(
        "a leave that a new coordinator does not know is said again",
        _MEMBER,
        "if leaving and not self.session.leaving:",
        "if False:",
        "ComesToRest",
        "leave=10",
        "coordinator_crash=10",
    ),
    _one(
        "only what still comes is said to be prepared",
        _MEMBER,
        "if self.lost or partition not in self.session.preparing:",
        "if self.lost:",
        "ConsumerObeys",
        "prepare_ms=50",
        "join=10",
    ),
    _one(
        "a round that is under way commits nothing for who comes later",
        _PROGRESS,
        "(2 if self._in_round else 1)",
        "1",
        "NothingFails",
    ),
    _one(
        "a commit that is answered late ends no later round",
        _MEMBER,
        "if request is self._committing:",
        "if True:",
        "NothingFails",
        "slow=0.3",
        "slow_ms_max=600",
    ),
    _one(
        "a release that is answered late is no sign of the next one",
        _MEMBER,
        "if request is self._releasing:",
        "if True:",
        "ComesToRest",
        *PATIENT,
        "slow=0.3",
        "slow_ms_max=600",
    ),
    _one(
        "a partition that begins wakes the reading",
        _MEMBER,
        "self.wake_reading([grant.partition for grant in changes.started])",
        "pass",
        "ComesToRest",
    ),
    _one(
        "what a pause ends is read on",
        _MEMBER,
        "if paused != self.session.paused:",
        "if False:",
        "ComesToRest",
        "pause=15",
    ),
    _one(
        "nothing is read while the group is paused",
        "consumer/session.py",
        "        if self.paused:\n            return {}",
        "        pass",
        "ConsumerObeys",
        "pause=15",
    ),
    _one(
        "a buffer that is away is left alone for a moment",
        _PLAN,
        "plan.until_s = now_s + plan.backoff.failed()",
        "pass",
        "PausesWhenAway",
        "log_restart=10",
    ),
)
