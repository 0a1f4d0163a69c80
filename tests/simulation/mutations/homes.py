"""Guards of homes: where slots are served from, moves between disks, openings, the witnesses."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_WORLD = "tests/simulation/test_homes.py::test_"
DIE = f"{_WORLD}buffers_that_die_and_freeze"
KEPT = f"{_WORLD}every_promise_is_kept"
MOVES = f"{_WORLD}moves_that_are_cut_off_anywhere"
DISKS = f"{_WORLD}hosts_that_come_back_with_another_disk"
IDENTITY = "tests/unit/test_log_identity.py"
FORGOT = f"{_WORLD}a_registry_that_forgot_a_home_is_gone_on_with_from_the_newest_logs"
BEGUN = f"{_WORLD}a_lost_registry_is_begun_again_from_the_newest_logs"
OLDER = "tests/unit/test_older_registry.py"
LOST = f"{_WORLD}registries_that_come_back_older_or_empty"


HOMES = (
    Mutation(
        "a buffer that stopped for a move that was given up goes on",
        (
            Change(
                "topology/homes.py",
                "    if home.leaving:  # a move",
                "    if False:  # a move",
            ),
        ),
        tests=(MOVES,),
    ),
    Mutation(
        "a copy is in its place before its home is",
        (
            Change(
                "topology/move_steps.py",
                "            yield Install(arrival)\n"
                "        home = yield from rounds.moved(slot, node)\n",
                "        home = yield from rounds.moved(slot, node)\n"
                "        if arrival is not None:\n            yield Install(arrival)\n",
            ),
        ),
        tests=(MOVES,),
    ),
    Mutation(
        "a buffer stops before the rest of its logs is copied",
        (
            Change(
                "topology/move_steps.py",
                "        yield StopBuffer(slot)\n",
                "",
            ),
            Change(
                "topology/move_steps.py",
                "            copied += yield CopyRound(arrival, slot, last=True)\n"
                "            left = yield ListFiles(slot)\n",
                "            copied += yield CopyRound(arrival, slot)\n",
            ),
        ),
        tests=(MOVES,),
        note="a copy that is the last one is refused of a buffer that serves: both are gone",
    ),
    Mutation(
        "of two copies the one that was served from last is known without a registry",
        (
            Change(
                "topology/move_steps.py",
                "            yield StepBack(slot, before.term + 1, before.moves)\n",
                "",
            ),
        ),
        tests=(LOST,),
    ),
    Mutation(
        "that logs were made is durable before they are served",
        (
            Change(
                "topology/openings.py",
                "    yield NoteMade(tuple(made))\n",
                "",
            ),
        ),
        tests=(KEPT,),
    ),
    Mutation(
        "a log that was made is never made again",
        (
            Change(
                "topology/openings.py",
                "not homes.is_made(s.queue, i)]",
                "True]",
            ),
        ),
        tests=(KEPT,),
    ),
    Mutation(
        "a buffer that began anew gets its queues again",
        (
            Change(
                "topology/slot_table.py",
                "if info.problem or info.incarnation == self._incarnations.get(index):",
                "if info.problem or index in self._incarnations:",
            ),
        ),
        tests=(DIE,),
    ),
    Mutation(
        "a buffer where opening failed is opened when it answers again",
        (
            Change(
                "topology/slot_table.py",
                'when it answers again."""\n        self._incarnations.pop(index, None)\n',
                'when it answers again."""\n',
            ),
        ),
        tests=(f"{_WORLD}buffers_that_die_and_freeze",),
    ),
    Mutation(
        "a process that was made for another disk makes way for one of this disk",
        (
            Change(
                "topology/homes.py",
                "        elif seen[slot].misses_disk and _has_disk(found, living):\n",
                "        elif False:\n",
            ),
            Change(
                "topology/slot_table.py",
                "        anew = index in self._elsewhere or self",
                "        anew = False and self",
            ),
        ),
        tests=(DISKS,),
        note="the coordinator that changed the home knows it; one that began later sees it",
    ),
    Mutation(
        "logs of another registry get no lease",
        (
            Change(
                "topology/slot_table.py",
                "            or known.topology_id != claim.topology_id\n",
                "",
            ),
        ),
        tests=(LOST,),
    ),
    Mutation(
        "a registry that is older than a move is noticed by the logs that moved",
        (Change("log/identity.py", "            or known.moves > self.moves\n", ""),),
        tests=(IDENTITY,),
    ),
    Mutation(
        "a registry that is older than a home is noticed by the logs that were at home there",
        (Change("log/identity.py", "            or known.term > self.term\n", ""),),
        tests=(IDENTITY,),
    ),
    Mutation(
        "logs that were moved away, and removed, leave word of it",
        (
            Change(
                "log/log_copy.py",
                "                note_left(files, place)\n",
                "                pass\n",
            ),
        ),
        tests=(IDENTITY,),
    ),
    Mutation(
        "a process that goes by a later coordinator speaks against an older registry",
        (
            Change(
                "topology/slot_table.py",
                "            or granted > (claim.generation, claim.term)\n",
                "",
            ),
        ),
        tests=(IDENTITY,),
    ),
    Mutation(
        "an accepted registry gives no term a second time",
        (
            Change(
                "topology/older_registry.py",
                "        if last.disk != home.disk or newest >= home.term:\n",
                "        if False:\n",
            ),
        ),
        tests=(IDENTITY,),
    ),
    Mutation(
        "who begins a lost registry again leads above all that the disks tell of",
        (
            Change(
                "topology/openings.py",
                "    return max((trace.identity.generation for trace in traces), default=0)\n",
                "    return 0\n",
            ),
        ),
        tests=(
            "tests/unit/test_survey.py::test_who_begins_a_lost_registry_again_leads_above_the_"
            "latest_that_any_disk_tells_of",
        ),
    ),
    Mutation(
        "a registry that is begun again is not begun a third time by the same word",
        (
            Change(
                "topology/registry_witness.py",
                "            self._write(shown=ShownRegistry(self._noted.registry_id))\n",
                "            pass\n",
            ),
        ),
        tests=("tests/actors/test_high_water.py",),
    ),
    Mutation(
        "logs that know more than their registry are not moved",
        (
            Change(
                "topology/home_rounds.py",
                "        if self._table.is_foreign(slot):\n",
                "        if False:\n",
            ),
        ),
        tests=(IDENTITY,),
    ),
    Mutation(
        "a queue that nobody knows is made nowhere where its logs may be",
        (
            Change(
                "topology/openings.py",
                "range(slots) if known.get(queue) else may_have)",
                "range(slots) if known.get(queue) else ())",
            ),
        ),
        tests=(IDENTITY,),
    ),
    Mutation(
        "logs that are away when a registry is begun again are not new",
        (
            Change(
                "topology/homes.py",
                "        if home is None and begun_again and not",
                "        if home is None and False and not",
            ),
        ),
        tests=(OLDER,),
    ),
    Mutation(
        "a registry's loss is accepted as it was shown, and no other",
        (
            Change(
                "topology/registry_witness.py",
                "        if not self.accepted or not void:\n",
                "        if True:\n",
            ),
        ),
        tests=("tests/actors/test_high_water.py",),
    ),
    Mutation(
        "a registry that is not here is begun by nobody but a deployment",
        (
            Change(
                "topology/openings.py",
                "    check_unknown(topology, places)\n    if not may_begin:\n",
                "    if False:\n",
            ),
        ),
        tests=(LOST,),
    ),
    Mutation(
        "a log that has seen a higher epoch than its registry stops the group",
        (
            Change(
                "topology/log_witness.py",
                "e > rows[p].epoch}",
                "False}",
            ),
        ),
        tests=(LOST,),
    ),
    Mutation(
        "nobody is granted anew before the log that refuses has told what it has seen",
        (
            Change(
                "topology/log_witness.py",
                "        above = {p: max(seen[p], rows[p].epoch) for p in waiting if p in seen}\n",
                "        above = {p: max(seen.get(p, 0), rows[p].epoch) for p in waiting}\n",
            ),
        ),
        tests=("tests/unit/test_log_witness.py",),
    ),
    Mutation(
        "an accepted start that was cut off is gone on with on another node",
        (
            Change(
                "topology/registry_witness.py",
                'ACCEPTING = "accepting"',
                'ACCEPTING = ""',
            ),
        ),
        tests=(LOST,),
    ),
    Mutation(
        "a queue whose logs lie on the disks keeps its id when its registry was lost",
        (
            Change(
                "topology/openings.py",
                "        if known.get(queue):\n            homes = homes.without_queue(queue)\n",
                "        if False:\n            homes = homes.without_queue(queue)\n",
            ),
            Change(
                "topology/openings.py",
                "for queue, each in trace.queues.items() if each}",
                "for queue, each in trace.queues.items() if False}",
            ),
        ),
        tests=(LOST,),
    ),
    Mutation(
        "a disk that tells of a later home has its slot served by nobody",
        (
            Change(
                "topology/home_rounds.py",
                "            self._table.was_elsewhere(slot, home.host)\n",
                "            pass\n",
            ),
        ),
        tests=(OLDER,),
    ),
    Mutation(
        "that a slot was at home elsewhere is known when that host is away again",
        (
            Change(
                "topology/homes.py",
                "        return replace(self, behind={**found, **self.behind})\n",
                "        return self\n",
            ),
        ),
        tests=(FORGOT, OLDER),
    ),
    Mutation(
        "who goes on with a registry that went back goes on from the newest logs",
        (
            Change(
                "topology/older_registry.py",
                "replace(last if last.disk != home.disk else home, ",
                "replace(home, ",
            ),
        ),
        tests=(FORGOT,),
    ),
    Mutation(
        "a term that is skipped here was served elsewhere",
        (
            Change(
                "topology/older_registry.py",
                "    return newer or stay_over\n",
                "    return newer\n",
            ),
        ),
        tests=(FORGOT, OLDER),
    ),
    Mutation(
        "notes of logs that left tell that a lost registry had some",
        (
            Change(
                "topology/homes.py",
                "any(node.slots or node.terms for node in nodes))",
                "any(node.slots for node in nodes))",
            ),
        ),
        tests=(BEGUN,),
    ),
    Mutation(
        "of a lost registry no copy is served that has left for another home",
        (
            Change(
                "topology/node_seen.py",
                "(newest >= told or both or is_enough)",
                "True",
            ),
        ),
        tests=(OLDER,),
    ),
)
