"""A whole topology in one process, without Ray: the parts behind `pxrs_ray.testing.TestTopology`.

Rules of this package. Everything that decides is the product's own: coordinator, session, lease,
store, logs, accumulator, courses, retry rules, fences. What stands here is the shell around them,
as `pxrs_ray.actors` is on Ray: one thread, a clock that a test moves, no waiting. Handlers are
called one at a time, in an order that is the same in every run.
"""

from __future__ import annotations
