"""Programs that run on the hosts; what they note is the witness, outside the product."""

from __future__ import annotations
