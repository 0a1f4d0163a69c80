"""The judge notices each fault that it is there for, and finds none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hosts.judge import Verdict, judge
from tests.hosts.notes import Acknowledged, Fact, Handled, Notes, Refused, Sent, read

KEYS = 4
EACH = 10


def handled(key: int, sequence: int, /, **changed: object) -> Handled:
    at_s = 10.0 + sequence + key / 100
    offset, epoch = sequence * KEYS + key, 1 if sequence < EACH // 2 else 3
    who = ("h0", "b0", 100, "g-0", 1) if epoch == 1 else ("h1", "b1", 100, "g-1", 2)
    one = Handled(at_s, at_s + 0.01, *who, 0, offset, epoch, f"k{key}", sequence)
    return replace(one, **changed)  # type: ignore[arg-type]


def sound_run() -> list[Fact]:
    """One partition, which one owner hands over to another in the middle."""
    facts: list[Fact] = []
    for sequence in range(EACH):
        for key in range(KEYS):
            name = (f"k{key}", sequence)
            facts.append(Sent(sequence + 0.0, *name))
            facts.append(Acknowledged(sequence + 0.5, *name, 0, sequence * KEYS + key))
            facts.append(handled(key, sequence))
    return facts


def broken(change: Callable[[list[Fact]], None], **given: object) -> list[str]:
    facts = sound_run()
    change(facts)
    verdict = judge(facts, **given)  # type: ignore[arg-type]
    assert verdict.sound == (not rules(verdict))
    return rules(verdict)


def rules(verdict: Verdict) -> list[str]:
    return [rule for rule, lines in verdict.violations.items() if lines]


def test_a_sound_run_is_sound() -> None:
    verdict = judge(sound_run())
    assert rules(verdict) == [] and verdict.sound
    assert (verdict.sent, verdict.acknowledged, verdict.handled) == (40, 40, 40)
    assert (verdict.handled_again, verdict.refused, verdict.overlap_ms) == (0, 0, 0)


def test_an_acknowledged_message_that_nobody_handled() -> None:
    def lose(facts: list[Fact]) -> None:
        facts.remove(handled(2, 7))

    assert broken(lose) == ["lost"]
    assert broken(lose, given_up={0}) == []
    assert broken(lose, given_up={1}) == ["lost"]
    assert broken(lose, all_handled=False) == []


def test_an_offset_that_was_acknowledged_twice() -> None:
    def twice(facts: list[Fact]) -> None:
        facts += [Sent(5, "x", 0), Acknowledged(6, "x", 0, 0, 13)]

    assert broken(twice, all_handled=False) == ["offset given twice"]


def test_an_offset_under_which_another_message_was_handled() -> None:
    def twice(facts: list[Fact]) -> None:
        facts += [Sent(5, "x", 0), handled(3, 9, key="x", sequence=0)]

    assert broken(twice) == ["offset given twice"]


@pytest.mark.parametrize(
    "other", [{"pid": 101}, {"host": "h2"}, {"boot": "b2"}, {"incarnation": 9}, {"member": "g-9"}]
)
def test_an_epoch_that_two_consumers_worked_under(other: dict[str, object]) -> None:
    def two(facts: list[Fact]) -> None:
        facts[facts.index(handled(3, 9))] = handled(3, 9, **other)

    assert broken(two) == ["epoch of two"]


def test_a_message_begun_under_an_epoch_that_was_over() -> None:
    def zombie(facts: list[Fact]) -> None:
        old = handled(0, 4)
        facts.append(replace(old, from_s=15.1, to_s=15.2, key="k9", offset=99, sequence=0))
        facts += [Sent(1, "k9", 0), Acknowledged(2, "k9", 0, 0, 99)]

    assert broken(zombie, overlap_s_max=1) == ["stale epoch"]
    assert broken(zombie) == ["stale epoch", "overlap"]


def test_an_epoch_that_came_again() -> None:
    """The registry went back: the newest owner has a lower epoch than the one before it."""

    def back(facts: list[Fact]) -> None:
        for place, fact in enumerate(facts):
            if isinstance(fact, Handled) and fact.sequence >= 8:
                facts[place] = replace(fact, epoch=2)

    assert broken(back, overlap_s_max=100) == ["stale epoch"]


def test_an_owner_that_works_on_beside_its_successor() -> None:
    def long(facts: list[Fact]) -> None:
        facts[facts.index(handled(3, 4))] = handled(3, 4, to_s=16.5)

    assert broken(long) == ["overlap"]
    assert broken(long, overlap_s_max=1.4) == ["overlap"]
    assert broken(long, overlap_s_max=1.6) == []


def test_a_key_whose_messages_were_handled_in_another_order() -> None:
    def swap(facts: list[Fact]) -> None:
        one, other = handled(1, 6), handled(1, 7)
        for before, after in ((one, other), (other, one)):
            moved = replace(before, from_s=after.from_s, to_s=after.to_s)
            facts[facts.index(before)] = moved

    assert broken(swap) == ["out of order"]


def test_a_message_that_one_owner_repeats() -> None:
    def again(facts: list[Fact]) -> None:
        facts.append(handled(1, 6, from_s=30.0, to_s=30.1))

    assert broken(again) == ["out of order"]


def test_a_gap_that_is_filled_after_what_follows_it() -> None:
    """The new owner starts too late, and another one makes up for it: nothing lost, order gone."""

    def late(facts: list[Fact]) -> None:
        facts[facts.index(handled(1, 6))] = handled(1, 6, epoch=5, pid=7, from_s=30.0, to_s=30.1)

    assert broken(late) == ["out of order"]


def test_a_key_whose_messages_are_not_in_order_in_the_log() -> None:
    def swap(facts: list[Fact]) -> None:
        facts += [Sent(1, "x", 0), Sent(1, "x", 1)]
        facts += [Acknowledged(2, "x", 0, 1, 8), Acknowledged(2, "x", 1, 1, 7)]

    assert broken(swap, all_handled=False) == ["out of order"]


def test_a_key_that_changes_its_partition() -> None:
    def move(facts: list[Fact]) -> None:
        facts += [Sent(1, "k0", 10), Acknowledged(2, "k0", 10, 1, 0)]

    assert broken(move, all_handled=False) == ["out of order"]


def test_a_message_that_nobody_sent() -> None:
    def appear(facts: list[Fact]) -> None:
        facts.append(handled(1, 9, key="x", sequence=3, offset=77))

    assert broken(appear) == ["from nowhere"]


def test_what_is_delivered_again_by_the_next_owner_is_told_and_no_fault() -> None:
    facts = sound_run()
    facts += [
        handled(1, 4, epoch=3, host="h1", boot="b1", member="g-1", incarnation=2, from_s=14.9)
    ]
    verdict = judge(facts, overlap_s_max=1)
    assert verdict.handled_again == 1 and verdict.sound, str(verdict)


def test_what_was_refused_is_no_loss() -> None:
    facts = [*sound_run(), Sent(5, "k0", 10), Refused(6, "k0", 10, "LogAway")]
    verdict = judge(facts)
    assert verdict.sound and verdict.refused == 1


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    facts = [*sound_run(), Refused(6, "k0", 10, "LogAway")]
    notes = Notes(tmp_path, "x")
    notes.write(*facts[:50])
    notes.write(*facts[50:])
    assert read(tmp_path) == facts
    (file,) = tmp_path.iterdir()
    with file.open("a") as opened:
        opened.write('["Sent", 1.0, "k')  # what a power cut may leave of a line
    assert read(tmp_path) == facts


def test_the_verdict_tells_what_is_wrong() -> None:
    facts = sound_run()
    facts.remove(handled(2, 7))
    told = str(judge(facts))
    assert "1 lost" in told and "k2:7 at P0 offset 30" in told
