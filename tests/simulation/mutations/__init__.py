"""Every guard of PXRS that the simulator is proven with; see `base` for the rules."""

from __future__ import annotations

from tests.simulation.mutations.base import Change as Change
from tests.simulation.mutations.base import Mutation as Mutation
from tests.simulation.mutations.core import CORE
from tests.simulation.mutations.others import OTHERS

MUTATIONS = (*CORE, *OTHERS)
