"""Random faults on three hosts: `python -m tests.hosts --minutes 30 [--seed 7]`.

For the given time, under a steady load, processes of the product are killed, hosts lose their
power and come back (with `--replicas` also with empty disks), links are cut (both ways, one way),
processes freeze. Then everything is left in peace, and the judge reads what producers and handlers
noted. The plan (which fault, where, for how long, with which pause after it) is made from the seed
alone, before the first fault.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from tests.hosts.faults import Plan, World3, carry_out, make_plan
from tests.servers import ServiceMissing

REST_S = 180


def main() -> int:
    """Answer 0 when nothing was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--durability", default="always", choices=("always", "interval"))
    parser.add_argument("--replicas", type=int, default=1, choices=(1, 2, 3))
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1 << 32)
    # `interval` promises nothing where power is cut, unless another host has it.
    power = given.durability == "always" or given.replicas > 1
    plan: Plan = make_plan(seed, given.minutes * 60, power=power, replicas=given.replicas)
    again = (
        f"python -m tests.hosts --minutes {given.minutes:g} --seed {seed} "
        f"--durability {given.durability} --replicas {given.replicas}"
    )
    print(f"hosts: {given.minutes:g} min, seed {seed}; again: {again}", flush=True)
    done: Counter[str] = Counter()
    began_s = time.monotonic()
    try:
        with World3(given.durability, given.replicas) as world:
            carry_out(world, plan, done, time.monotonic() + given.minutes * 60)
            verdict = world.come_to_rest(REST_S)
            sound = verdict.sound and not world.stuck
            told = "" if sound else f"stand still: {sorted(world.stuck)}\n{world.told()}"
    except ServiceMissing as missing:
        print(f"hosts: {missing}", file=sys.stderr)
        return 2
    faults = ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
    print(f"hosts: {time.monotonic() - began_s:.0f} s; {faults}")
    print(f"hosts: {verdict}")
    if not sound:
        print(f"{told}\nhosts: VIOLATED; again: {again}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
