"""Stands for a model that is paid by the call. It notes each call where PAID_CALLS says."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

CALL_S = 0.05
BUSY_S = 1.0


class TooMany(Exception):
    """The service refuses for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def ask(model: str, prompt: str) -> str:
    """The model's answer. The one that is `busy` refuses everybody's first call."""
    refused = Path(os.environ["PAID_CALLS"]) / f"refused-{prompt}"
    if model == "busy" and not refused.exists():
        refused.touch()
        raise TooMany(BUSY_S)
    _note("begun", prompt)
    time.sleep(CALL_S)
    _note("paid", prompt)
    return prompt.upper()


def _note(what: str, prompt: str) -> None:
    path = Path(os.environ["PAID_CALLS"]) / f"calls-{os.getpid()}"
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
    file = os.open(path, flags)
    try:  # one system call: a kill leaves no half of a line
        os.write(file, json.dumps([time.time(), what, prompt]).encode() + b"\n")
    finally:
        os.close(file)
