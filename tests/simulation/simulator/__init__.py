"""A whole group in one thread: real cores over a bad network, in virtual time, from one seed.

`world` is time, processes and the network between them; `coordinator`, `consumer`, `producer`
and `log` are the shells around the real cores; `chaos` breaks things; `run` puts one run
together, and `tests.simulation.command` runs many.
"""

from __future__ import annotations
