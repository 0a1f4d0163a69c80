"""What a log has acknowledged it keeps, at its offset, once; and offsets are given out once."""

from __future__ import annotations

from pxrs_ray.model import Offset, PartitionId
from tests.simulation.checkers.base import Checker
from tests.simulation.history import Acknowledged, Appended, Harmed, Kept


class LogsKeep(Checker):
    """When all is at rest, each acknowledged message is in its log where its producer was told.

    Excused is what retention has dropped, and what was acknowledged before a disk was harmed in a
    way that loses. No message is there twice, whatever befell.
    """

    def __init__(self) -> None:
        super().__init__()
        self._acknowledged: dict[PartitionId, dict[Offset, str]] = {}
        self._lost: set[str] = set()
        self._appended: list[str] = []

    def on_appended(self, event: Appended) -> None:
        """It may be lost with the disk, also where its producer hears of it later."""
        self._appended.append(event.message)

    def on_acknowledged(self, event: Acknowledged) -> None:
        """This is promised."""
        self._acknowledged.setdefault(event.partition, {})[event.offset] = event.message

    def on_harmed(self, event: Harmed) -> None:
        """What was promised so far is promised no more."""
        if event.loses:
            self._lost.update(self._appended)
            self._appended.clear()

    def on_kept(self, event: Kept) -> None:
        """Compare with what was promised."""
        for offset, message in self._acknowledged.get(event.partition, {}).items():
            if offset < event.start or message in self._lost:
                continue
            if event.messages.get(offset) != message:
                told = f"{message} was acknowledged at {offset} of partition {event.partition}"
                self.broken(event.at_ms, f"{told}: there is {event.messages.get(offset)}")
        if len(set(event.messages.values())) != len(event.messages):
            self.broken(event.at_ms, f"partition {event.partition} holds a message twice")


class OffsetsOnce(Checker):
    """An offset at which readers could see a message is never another one's.

    That holds also where a disk has lost it: who has passed the offset would never be given the
    other message.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[PartitionId, dict[Offset, str]] = {}

    def on_appended(self, event: Appended) -> None:
        """Compare with what was seen there before."""
        seen = self._seen.setdefault(event.partition, {})
        before = seen.setdefault(event.offset, event.message)
        if before != event.message:
            self.broken(event.at_ms, f"{event}: it was {before}'s")
