"""Guards of what becomes of bad messages: blame, letters, quarantine, sources. Tests see them."""

from __future__ import annotations

from tests.simulation.mutations.base import Change, Mutation

_NET = ("tests/unit/test_poison_net.py",)
_GIVING_UP = ("tests/unit/test_giving_up.py",)
_RECORDS = ("tests/unit/test_source_records.py",)

POISON = (
    Mutation(
        "what is in hand is written before the handler is called",
        (
            Change(
                "actors/consumer/sequential_worker.py",
                "as its end the next message.\n            words[at] = offset\n",
                "as its end the next message.\n",
            ),
        ),
        tests=_NET,
    ),
    Mutation(
        "a death in company counts against nobody",
        (
            Change(
                "processing/suspects.py",
                "alone = len(death.calls) == 1 and end - first == 1",
                "alone = end - first == 1",
            ),
        ),
        tests=_NET,
    ),
    Mutation(
        "what has killed too often is not delivered again",
        (
            Change(
                "processing/suspects.py",
                "return self.alone > 0 and 0 < attempts_max <= attempts",
                "return False",
            ),
        ),
        tests=_NET,
    ),
    Mutation(
        "a suspect is in hand alone",
        (
            Change(
                "processing/suspects.py",
                "return self.trouble >= ISOLATED_FROM",
                "return False",
            ),
        ),
        tests=_NET,
    ),
    Mutation(
        "attempts of what is next are kept before it begins",
        (
            Change(
                "processing/in_order.py",
                "max(attempts, failing.get(offset, 0))",
                "attempts",
            ),
        ),
        tests=_NET,
    ),
    Mutation(
        "a message has one letter",
        (
            Change(
                "consumer/dead_letter.py",
                'producer_id(f"letter of {place}/{message.offset}")',
                "producer_id(f\"letter of {place}/{__import__('uuid').uuid4()}\")",
            ),
        ),
        tests=_GIVING_UP,
    ),
    Mutation(
        "what is given up is kept before anything goes on",
        (
            Change(
                "actors/consumer/sequential_worker.py",
                "            self._order.not_kept(monotonic())\n",
                "            self._order.kept()\n",
            ),
        ),
        tests=_GIVING_UP,
    ),
    Mutation(
        "a seek back brings parked messages again",
        (
            Change(
                "processing/redrive.py",
                "if sought is None or not self._state.comes_again(*sought):",
                "if sought is None or sought != ():",
            ),
        ),
        tests=_GIVING_UP,
    ),
    Mutation(
        "re-driving goes on after passing trouble",
        (Change("actors/consumer/redrive.py", "self._stopping.wait(AGAIN_S)", "continue"),),
        tests=_GIVING_UP,
    ),
    Mutation(
        "a bad record of a source stands alone",
        (
            Change(
                "sources/soundness.py",
                "apart = record.error or (run and run[-1].error)",
                'apart = ""',
            ),
        ),
        tests=_RECORDS,
    ),
    Mutation(
        "readers of a source agree on a partition",
        (
            Change(
                "config/topology.py",
                "if queue.source is not None and queue.strategy not in FOR_SOURCES",
                "if queue.source is not None and queue.strategy is None",
            ),
        ),
        tests=_RECORDS,
    ),
)
