"""Guards of a tenant's move, judged in its world: who is heard, held back, fenced and ended."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_MOVES, _FOLLOWED = "tenants/tenant_moves.py", "tenants/followed_routes.py"
_WORLD = (
    "tests/simulation/test_tenants_move.py::"
    "test_no_message_is_lost_doubled_or_out_of_order_and_each_move_ends"
)


def _seen(guard: str, file: str, text: str, instead: str) -> Mutation:
    return Mutation(guard, (Change(file, text, instead),), tests=(_WORLD,))


MOVING = (
    _seen(
        "who read a tenant's own queue is ended before it is promoted again",
        _MOVES,
        "        yield from self._stop(tenant)\n        yield from self._change",
        "        yield from self._change",
    ),
    _seen(
        "a tenant's consumers that a dead router left are ended by the next one",
        _MOVES,
        "if kept.phase is Phase.SHARED:",
        "if False:",
    ),
    _seen(
        "in the world of tenants a silent producer is fenced before others go on",
        _MOVES,
        "yield from do(FenceProducer(producer, queues))",
        "pass",
    ),
    _seen(
        "in the world of tenants a new router waits for whoever its former one knew",
        _MOVES,
        "if not sure:",
        "if False:",
    ),
    _seen(
        "every producer hears of the first move of a tenant",
        _MOVES,
        "switched = dict.fromkeys(self.leases.names(), 0) if known is None else known.switched",
        "switched = {} if known is None else known.switched",
    ),
    _seen(
        "a producer of tenants sends only while it is sure of its lease",
        _FOLLOWED,
        "return now_s < self.sure_until_s and not self.fenced",
        "return not self.fenced",
    ),
    _seen(
        "in the world of tenants what was sent before a move is in the logs",
        _FOLLOWED,
        "return all(sent.done() for sent in self._under_way.get(tenant, ()))",
        "return True",
    ),
    _seen(
        "a moved tenant's own queue is read when the shared one has passed its barrier",
        "tenants/migration.py",
        "shared_passed.get(partition, 0) >= end",
        "True",
    ),
    _seen(
        "a tenant shares again when nothing is unread of its own queue",
        "tenants/migration.py",
        "self.all_switched and isolated_unread == 0",
        "self.all_switched",
    ),
    Mutation(
        "what waited for the registry undoes nothing that was kept after it",
        (
            Change(
                "actors/coordinator/topology_documents.py",
                "        async with self._turn(name):\n"
                "            await self._put_document(name, text)",
                "        await self._put_document(name, text)",
            ),
        ),
        tests=(
            "tests/unit/test_documents_in_turn.py::"
            "test_what_waited_for_the_registry_undoes_nothing_that_was_kept_after_it",
        ),
    ),
    Mutation(
        "one tenant whose group does not answer holds up no other's move",
        (Change(_MOVES, "                troubles.append(error)", "                raise error"),),
        tests=(
            "tests/unit/test_tenants.py::test_a_tenant_whose_group_does_not_answer_holds_up_no_other",
        ),
    ),
)
