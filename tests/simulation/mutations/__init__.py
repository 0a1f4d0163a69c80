"""Every guard of PXRS that the simulator is proven with; see `base` for the rules."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.mutations.asking import ASKING
from tests.simulation.mutations.base import Change as Change
from tests.simulation.mutations.base import Mutation as Mutation
from tests.simulation.mutations.buffers import BUFFERS
from tests.simulation.mutations.calling import CALLING
from tests.simulation.mutations.control import CONTROL
from tests.simulation.mutations.coordinating import COORDINATING
from tests.simulation.mutations.core import CORE
from tests.simulation.mutations.data import DATA
from tests.simulation.mutations.defects import DEFECTS
from tests.simulation.mutations.delaying import DELAYING
from tests.simulation.mutations.electing import ELECTING
from tests.simulation.mutations.ends import ENDS
from tests.simulation.mutations.feeding import FEEDING
from tests.simulation.mutations.few_files import FEW_FILES
from tests.simulation.mutations.first_seeds import FIRST_SEEDS
from tests.simulation.mutations.gap_maps import GAP_MAPS
from tests.simulation.mutations.homes import HOMES
from tests.simulation.mutations.leases import LEASES
from tests.simulation.mutations.linking import LINKING
from tests.simulation.mutations.liveness import LIVENESS
from tests.simulation.mutations.member import MEMBER
from tests.simulation.mutations.moving import MOVING
from tests.simulation.mutations.others import OTHERS
from tests.simulation.mutations.outside import OUTSIDE
from tests.simulation.mutations.poison import POISON
from tests.simulation.mutations.producing import PRODUCING
from tests.simulation.mutations.replica_logs import REPLICA_LOGS
from tests.simulation.mutations.replica_moves import REPLICA_MOVES
from tests.simulation.mutations.replicas_hosted import REPLICAS_HOSTED
from tests.simulation.mutations.replicating import REPLICATING
from tests.simulation.mutations.runtime import RUNTIME
from tests.simulation.mutations.scaling import SCALING
from tests.simulation.mutations.setting_aside import SETTING_ASIDE
from tests.simulation.mutations.sleeping import SLEEPING
from tests.simulation.mutations.starting import STARTING
from tests.simulation.mutations.supervising import SUPERVISING
from tests.simulation.mutations.tenure import TENURE
from tests.simulation.mutations.topologies import TOPOLOGIES
from tests.simulation.mutations.workers import WORKERS
from tests.simulation.mutations.working import WORKING
from tests.simulation.mutations.worlds import WORLDS

_ALL = (
    *CORE,
    *OTHERS,
    *DATA,
    *TENURE,
    *POISON,
    *PRODUCING,
    *CONTROL,
    *COORDINATING,
    *WORKERS,
    *LINKING,
    *LIVENESS,
    *LEASES,
    *MEMBER,
    *OUTSIDE,
    *RUNTIME,
    *HOMES,
    *SCALING,
    *BUFFERS,
    *ELECTING,
    *REPLICATING,
    *REPLICA_MOVES,
    *REPLICAS_HOSTED,
    *REPLICA_LOGS,
    *WORLDS,
    *WORKING,
    *ASKING,
    *FEEDING,
    *FEW_FILES,
    *DEFECTS,
    *MOVING,
    *TOPOLOGIES,
    *SLEEPING,
    *SUPERVISING,
    *CALLING,
    *STARTING,
    *ENDS,
    *SETTING_ASIDE,
    *GAP_MAPS,
    *DELAYING,
)

MUTATIONS = tuple(
    replace(mutation, first_seed=FIRST_SEEDS.get(mutation.guard, 0)) for mutation in _ALL
)
