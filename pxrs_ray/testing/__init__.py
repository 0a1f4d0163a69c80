"""What proves PXRS and what proves others' parts for it: contract suites, fakes, the simulator."""

from __future__ import annotations
