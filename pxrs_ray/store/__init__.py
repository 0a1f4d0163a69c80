"""Registry stores: where ownership, checkpoints and epochs live. The contract is in `base`."""

from __future__ import annotations
