"""How the messages of one partition are processed: which run at the same time, and which are tried
again.

Rules of this package: pure, no clock, no thread. A `WorkScheduler` says what may begin now, and its
caller reports what ended; the caller (`pxrs_ray.actors.consumer.parallel_worker`, a test's loop)
calls the handler.
"""

from __future__ import annotations
