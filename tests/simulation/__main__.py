"""`python -m tests.simulation ...`: the same as `python -m pxrs_ray.testing.simulate ...`."""

from __future__ import annotations

import sys

from pxrs_ray.testing.simulate import main

sys.exit(main())
