"""`python -m tests.simulation ...`: the same as `python -m tests.simulation.command ...`."""

from __future__ import annotations

import sys

from tests.simulation.command import main

sys.exit(main())
