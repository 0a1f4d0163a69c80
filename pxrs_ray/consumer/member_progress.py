"""`MemberProgress`: when a member commits what is done, and releases what has stopped. Pure.

Rules of this file. Commits go in rounds, by an interval or when somebody wants one. A round begins
by looking at what is done, and is over when that is answered or there is nothing: so who wants
everything committed that was done before now waits for a round that has not begun yet. A round that
is not heard goes on, with what is done by then. While nothing could be committed there are no
rounds, until something is read or somebody wants one. A release gathers for a moment what stops
together, and is repeated until it is answered. Nothing is committed or released when the lease is
over.
"""

from __future__ import annotations

from collections.abc import Callable

from pxrs_ray.consumer.member_effects import (
    MemberChannel,
    MemberEffect,
    Rest,
    RoundOver,
    WakeChannel,
)
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.group.events import Commit, Release

# Workers that are told to stop together end almost together: one call for all.
RELEASE_GATHER_S = 0.002
# Whatever refuses us at once is not asked without a pause.
AGAIN_S = 0.005


class MemberProgress:
    """The rounds and releases of one member."""

    def __init__(self, effect: Callable[[MemberEffect], None]) -> None:
        # How many rounds are over.
        self.rounds = 0
        self._rounds_wanted = 0
        self._in_round = False
        self._commit_wanted = False
        self._commit_s = float("-inf")
        # When to look what can be released; None: when something has changed.
        self._release_s: float | None = None
        self._effect = effect

    # --- commits ----------------------------------------------------------------------------------

    @property
    def commit_is_wanted(self) -> bool:
        """Whether a commit comes without waiting, that has not looked yet at what is done: who has
        done more meanwhile need not ask for another one. From any thread."""
        return self._commit_wanted

    def commit_soon(self) -> None:
        """Commit without waiting for the interval."""
        self._commit_wanted = True
        self._effect(WakeChannel(MemberChannel.COMMIT))

    def _work_began(self) -> None:
        """There may be something to commit, after there was not."""
        self._effect(WakeChannel(MemberChannel.COMMIT))

    def commit_all(self) -> int:
        """Commit everything that is done; it is, or is lost, when so many `rounds` are over."""
        # A round that is under way may have read the progress before this call.
        wanted = self.rounds + (2 if self._in_round else 1)
        self._rounds_wanted = max(self._rounds_wanted, wanted)
        self.commit_soon()
        return wanted

    def next_commit(
        self, session: ConsumerSession, interval_s: float, is_over: bool, now_s: float
    ) -> Commit | Rest:
        """What to commit now; `is_over` says that the lease is."""
        if now_s < self._commit_s and (self._in_round or not self._commit_wanted):
            return Rest(self._commit_s)
        while True:
            if not self._in_round:
                # Before the look, for those who see that a commit is wanted and do not ask.
                self._in_round, self._commit_wanted = True, False
            rows = session.to_commit()
            if rows:
                break
            self.committed(interval_s, now_s)
            if not self._commit_wanted:
                if not session.at_rest:
                    return Rest(self._commit_s)
                session.woken = self._work_began
                return Rest()
        return Rest() if is_over else Commit(session.member, session.incarnation, rows)

    def committed(self, interval_s: float, now_s: float) -> None:
        """The round is over; another one follows at once where somebody waits for it."""
        self._in_round = False
        self.rounds += 1
        self._commit_s = now_s + interval_s
        if self.rounds < self._rounds_wanted:
            self._commit_wanted = True
        self._effect(RoundOver())

    def commit_unheard(self, now_s: float) -> None:
        """The round goes on."""
        self._commit_s = now_s + AGAIN_S

    # --- releases ---------------------------------------------------------------------------------

    def release_soon(self, now_s: float) -> None:
        """Something may have to be released."""
        if self._release_s is None:
            self._release_s = now_s + RELEASE_GATHER_S
            self._effect(WakeChannel(MemberChannel.RELEASE))

    def next_release(self, session: ConsumerSession, is_over: bool, now_s: float) -> Release | Rest:
        """What to release now; `is_over` says that the lease is."""
        if self._release_s is None or now_s < self._release_s:
            return Rest(self._release_s)
        rows = session.to_release()
        if not rows:
            # Until something is released it is looked again, whatever ends a look meanwhile.
            self._release_s = None
            return Rest()
        if is_over:
            return Rest()
        return Release(session.member, session.incarnation, rows)

    def released(self, now_s: float) -> None:
        """It is answered; what has stopped meanwhile is released next."""
        self._release_s = now_s

    def release_unheard(self, now_s: float) -> None:
        """It is made again."""
        self._release_s = now_s + RELEASE_GATHER_S
