"""`python -m tests.fuzz --minutes 60 [--seed 7] [--door http]`: random bytes at every door."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter

from tests.fuzz.doors import doors
from tests.fuzz.knocking import knock

ROUND_CALLS = 200


def main() -> int:
    """Knock until the time is over; tell every finding once a door and kind of error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFF)
    parser.add_argument("--door", default="", help="only doors with this in their name")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rng = random.Random(asked.seed)
    end_s = time.monotonic() + asked.minutes * 60
    calls: Counter[str] = Counter()
    told: set[tuple[str, str]] = set()
    while time.monotonic() < end_s:
        for door in doors():
            if asked.door not in door.name:
                continue
            some = max(1, ROUND_CALLS // door.costly)
            calls[door.name] += some
            for found in knock(door, rng, some):
                kind = (found.door, found.error[:40])
                if kind not in told:
                    told.add(kind)
                    print(f"{found.door}: {found.data[:200]!r}: {found.error}", flush=True)
    count = sum(calls.values())
    print(f"seed {asked.seed}: {count:,} calls at {len(calls)} doors, {len(told)} findings")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
