"""Handlers that tests name by import path."""

from __future__ import annotations

import os
from pathlib import Path

from pxrs_ray.consumer.delivery import Delivery
from tests.actors.recording import Recorder


def record(message: Delivery) -> None:
    """Note the message in the folder that the environment names."""
    Recorder(Path(os.environ["NOTES"])).handle(message)
