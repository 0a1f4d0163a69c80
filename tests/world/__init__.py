"""A whole cluster in one process: the real actor classes on an event loop whose time is made up.

`kernel` has time, processes and threads, `cluster` stands in for Ray, `install` puts both in the
place of what the product's modules imported. Nothing of the product is changed or replaced but
what belongs to an operating system: a run is as fast as its work, and comes out the same again.
"""

from __future__ import annotations
