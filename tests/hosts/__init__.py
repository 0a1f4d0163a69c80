"""Several hosts on one machine, real Ray nodes on them, and what happens when hosts fail.

`hosts.Hosts` is the machines: namespaces, disks, a network that can be cut. `inside` is what runs
on them: the desk that a test deploys and asks through, producers and handlers that note what they
saw. `judge` reads these notes and says what must never have happened.
"""

from __future__ import annotations
