"""Guards of how groups and queues are made and removed, judged in their world of deaths."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_MAKING, _REMOVING = "topology/group_making.py", "topology/removing.py"
_START, _APPLYING = "topology/coordinator_start.py", "topology/applying.py"
_WORLD = (
    "tests/simulation/test_topologies.py::"
    "test_what_is_made_is_whole_what_is_removed_never_comes_back_and_commits_survive"
)


_LOST = "tests/simulation/test_homes.py::test_registries_that_come_back_older_or_empty"


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
    _seen(
        "a group that is being removed is led no more",
        _START,
        "sorted(set(found.groups) - set(found.going))",
        "sorted(set(found.groups))",
    ),
    _seen(
        "groups that a former coordinator made are led",
        _START,
        "        yield from do(LeadListed(group))\n",
        "        pass\n",
    ),
    _seen(
        "a configuration that was cut off reaches the buffers when it is applied again",
        _APPLYING,
        "of_buffers = of_buffers or self._is_half",
        "pass",
    ),
    _seen(
        "what was cut off in the middle is known to be applied half",
        _APPLYING,
        "        self._is_half = True\n",
        "",
    ),
    Mutation(
        "a configuration is durable before anybody goes by it",
        (
            Change(
                _APPLYING,
                "        yield from do(KeepWanted())\n        if of_buffers:",
                "        if of_buffers:",
            ),
            Change(
                _APPLYING,
                "            yield from do(ReconfigureGroup(group))\n",
                "            yield from do(ReconfigureGroup(group))\n"
                "        self._is_half = False\n        yield from do(KeepWanted())\n",
            ),
        ),
        tests=(_WORLD,),
    ),
    _seen(
        "a checkpoint that a seek has set back is told to the logs",
        "topology/told_checkpoints.py",
        "if self._told.get(p) != offset",
        "if self._told.get(p, -1) < offset",
    ),
    Mutation(
        "a loss that was accepted is settled when all has gone on with it",
        (
            Change(
                _START,
                "    yield from do(SettleStart())\n    yield from do(SettleAcceptance())\n",
                "    yield from do(SettleStart())\n",
            ),
            Change(
                _START,
                "    yield from do(CheckIdentity())\n",
                "    yield from do(SettleAcceptance())\n    yield from do(CheckIdentity())\n",
            ),
        ),
        tests=(_LOST,),
    ),
)
