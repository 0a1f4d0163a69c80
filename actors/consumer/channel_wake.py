"""`ChannelWake`: what is set when a channel of a member is to be looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChannelWake(asyncio.Event):
    """An event that can end another wait of the same task too, which has set what `ends` it.

    To wait for either of two things would take a task for each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: Callable[[], None] | None = None

    def set(self) -> None:
        """Let the channel be looked at."""
        super().set()
        if self.ends is not None:
            self.ends()
