"""How a program on a host joins the Ray that runs there."""

from __future__ import annotations

import ray


def connect() -> None:
    """Join the cluster of this host's node."""
    ray.init(address="auto", log_to_driver=False, configure_logging=False)
