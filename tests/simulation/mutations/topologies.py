"""Guards of how groups and queues are made and removed, judged in their world of deaths."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_MAKING, _REMOVING = "topology/group_making.py", "topology/removing.py"
_WORLD = (
    "tests/simulation/test_topologies.py::"
    "test_what_is_made_is_whole_what_is_removed_never_comes_back_and_commits_survive"
)


def _seen(guard: str, file: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), tests=(_WORLD,))


TOPOLOGIES = (
    _seen(
        "a new group gives out no epoch of one that is gone",
        _MAKING,
        "over = max(new.floor.epoch, fences.get(partition, 0))",
        "over = fences.get(partition, 0)",
    ),
    _seen(
        "what a creation that was cut off left is set to where the group begins",
        _MAKING,
        "    if moved:\n",
        "    if False:\n",
    ),
    _seen(
        "the configuration that names a group is durable before the list does",
        _MAKING,
        "    yield from do(KeepConfig())\n    yield from do(ListGroup())\n",
        "    yield from do(ListGroup())\n    yield from do(KeepConfig())\n",
    ),
    _seen(
        "what is to be removed is named before any of it is touched",
        _REMOVING,
        "    yield from do(KeepEnds(ends))\n    return ends\n\n\ndef begin_queue_end",
        "    yield from do(Unname(groups=(group,)))\n    yield from do(KeepEnds(ends))\n"
        "    return ends\n\n\ndef begin_queue_end",
    ),
    _seen(
        "a removed group is in the configuration no more",
        _REMOVING,
        "    yield from do(Unname(groups=(group,)))\n",
        "",
    ),
    _seen(
        "a removed group leaves no rows in the registry",
        _REMOVING,
        "    yield from do(RemoveRows(group))\n",
        "",
    ),
    _seen(
        "no log waits for a group that is removed",
        _REMOVING,
        "yield from do(DropGroup(queue, group))",
        "yield from ()",
    ),
    _seen(
        "a shift that is asked for again is not made twice",
        "group/seeking.py",
        "begins = (sought.begins or checkpoints).get(partition, checkpoint)",
        "begins = checkpoint",
    ),
    _seen(
        "a removed queue leaves no logs",
        _REMOVING,
        "    yield from do(DropQueue(queue))\n",
        "",
    ),
    _seen(
        "a group that goes tells what it has given out, and gives out nothing more",
        _REMOVING,
        "given = (yield from do(CloseGroup(group))) if known else GivenOut()",
        "given = GivenOut()",
    ),
)
