"""Whom a client asks again, and until when: `RequestTries` and `AliveCheck`, step by step."""

from __future__ import annotations

from pxrs_ray.supervision.request_tries import (
    FIND_S,
    RETRY_FIRST_S,
    AliveCheck,
    KnownCoordinator,
    LookUp,
    Make,
    Pause,
    RequestTries,
    Unheard,
)


def known(actor: object = None, in_doubt: bool = False) -> KnownCoordinator:
    made = KnownCoordinator()
    made.actor, made.in_doubt = actor, in_doubt
    return made


def test_who_is_known_is_asked_and_who_is_not_is_looked_up_first() -> None:
    assert RequestTries(known("a"), 0.0, 5.0).next(1.0) == Make("a", 4.0)
    tries = RequestTries(known(in_doubt=True), 0.0, 5.0)
    assert tries.next(0.0) == LookUp(FIND_S)
    tries.found("b")
    assert tries.next(0.5) == Make("b", 4.5)


def test_the_word_of_a_deposed_one_is_none_and_the_name_is_looked_up_again() -> None:
    who = known("old")
    tries = RequestTries(who, 0.0, 5.0)
    tries.next(0.0)
    tries.deposed("another leads")
    assert tries.next(0.1) == Pause(RETRY_FIRST_S)
    assert tries.next(0.2) == LookUp(FIND_S)
    tries.found("new")
    assert tries.next(0.3) == Make("new", 4.7) and who.actor == "new" and not who.in_doubt


def test_while_names_cannot_be_looked_up_the_last_known_one_is_asked() -> None:
    who = known("old", in_doubt=True)
    tries = RequestTries(who, 0.0, 5.0)
    tries.next(0.0)
    tries.names_away("mute")
    assert tries.next(1.0) == Make("old", 4.0) and who.in_doubt
    nobody = RequestTries(known(in_doubt=True), 0.0, 5.0)
    nobody.next(0.0)
    nobody.names_away("mute")
    assert isinstance(nobody.next(1.0), Pause)


def test_nothing_is_made_after_the_deadline() -> None:
    """What a lease allowed would come to a coordinator that has given it to somebody else."""
    tries = RequestTries(known("a"), 0.0, 0.05)
    tries.next(0.0)
    tries.unreached("gone")
    assert isinstance(tries.next(0.04), Pause)
    assert tries.next(0.05) == Unheard("gone", late=False)
    slow = RequestTries(known("a", in_doubt=True), 0.0, 0.5)
    slow.next(0.0)
    slow.names_away("mute")
    assert isinstance(slow.next(0.5), Unheard)


def test_who_comes_without_any_time_is_heard_once() -> None:
    tries = RequestTries(known(in_doubt=True), 3.0, 0.0)
    assert tries.next(3.0) == LookUp(0.0)
    tries.found("a")
    assert tries.next(3.1) == Make("a", 0.0)


def test_one_that_was_asked_and_is_late_is_not_asked_again() -> None:
    tries = RequestTries(known("a"), 0.0, 5.0)
    tries.next(0.0)
    tries.late()
    assert tries.next(4.0) == Unheard("it was asked", late=True)


def test_a_process_that_lives_and_is_mute_is_told_of_and_one_that_starts_is_waited_for() -> None:
    check = AliveCheck(0.0, 10.0, 2.0)
    assert check.look_s == 2.0 and AliveCheck(0.0, 1.0, 2.0).look_s == 0.5
    away, mute = Unheard("gone", late=False), Unheard("it was asked", late=True)
    assert check.after(away, lives=True, now_s=1.0) == Pause(RETRY_FIRST_S)
    assert check.after(mute, lives=False, now_s=1.0) == Pause(RETRY_FIRST_S)
    assert check.after(mute, lives=True, now_s=1.0) == mute
    assert check.after(away, lives=False, now_s=10.0) == away
