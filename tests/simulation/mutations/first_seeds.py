"""The seeds from which runs are looked at without a guard: what few runs show is found sooner where
it was found before.

A seed that shows nothing any more costs time and hides nothing, for the runs go on from there.
`python -m tests.simulation.found_again GUARD` tells after how many runs one is found today.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FIRST_SEEDS: Mapping[str, int] = MappingProxyType(
    {
        "checkpoints only rise (store)": 27,
        "a partition of another epoch is dropped": 16,
        "released only when the worker has stopped": 17,
        "the log fences a producer's older epoch": 29,
        "what a gap map says is done is passed without being fetched": 6,
        "a member's lease ends before its coordinator's": 9,
        "nothing is released when the lease is over": 40,
        "a release is repeated until it is answered": 21,
        "what stops while a release is under way is released next": 29,
        "a leave that a new coordinator does not know is said again": 19,
        "a refusal waits until what it rests on is durable": 27,
        "effects wait until what they rest on is durable": 20,
        "an answer to a former call is no answer to this one": 151,
        "what could not be synced is not acknowledged": 18,
        "a job hears which of its logs could not be synced": 24,
        "a call that looked in vain may look again": 85,
        "a new epoch follows what its producer has in the log": 338,
        "the log asks whom a new epoch follows": 338,
        "frames that are numbered anew are of a new epoch": 23,
        "what came under another epoch is given to no pulling caller": 29,
        "two lives that begin with one number are told apart": 116,
        "attempts belong to the message that has failed": 33,
        "rows wait until the ledger has their fingerprint": 10,
        "a repeated fact is a repeat, or refused": 10,
        "a Spark partition that was begun is compared with its fingerprints": 43,
        "a clock that leaps makes no producer silent (simulated)": 22,
        "what dropped frames knew is synced before they go (simulated)": 74,
        "asked back before taken": 6,
        "epoch compare in the store": 4,
        "epoch compare on fetch": 4,
        "who lost its membership drops everything": 5,
        "a sync that failed fails for ever": 37,
        "who had more pieces was another": 6,
        "what was never begun is not done": 9,
        "what could not be put aside is not done": 46,
        "a special call too begins under the lease": 46,
    }
)
