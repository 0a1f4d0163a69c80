"""How the messages of one partition are processed: what runs beside what, what is tried again.

Rules of this package: pure, no clock, no thread. A `WorkScheduler` says what may begin now and is
told what ended; whoever drives it (`pxrs_ray.actors.consumer.parallel_worker`, a test's loop) calls
the handler.
"""

from __future__ import annotations
