"""What a log has acknowledged it keeps, at its offset, once."""

from __future__ import annotations

from pxrs_ray.model import Offset, PartitionId
from tests.simulation.checkers.base import Checker
from tests.simulation.history import Acknowledged, Appended, Harmed, Kept, Reported

POWER = "power"


class OffsetsOnce(Checker):
    """An offset that a producer was told names its message for ever, whoever serves.

    Where a disk is harmed in a way that loses, that holds for what its log had reported before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[PartitionId, Offset], str] = {}
        self._reported: dict[PartitionId, Offset] = {}
        self._placed: dict[str, tuple[PartitionId, Offset]] = {}
        self._unknown: set[str] = set()

    def on_appended(self, event: Appended) -> None:
        """Its producer may hear of it much later."""
        self._placed[event.message] = (event.partition, event.offset)

    def on_reported(self, event: Reported) -> None:
        """No message that comes later is at an offset below."""
        self._reported[event.partition] = max(event.end, self._reported.get(event.partition, 0))

    def on_harmed(self, event: Harmed) -> None:
        """Of what nobody had heard of, nobody can know."""
        if not event.loses:
            return
        for message, (partition, offset) in self._placed.items():
            if offset >= self._reported.get(partition, 0):
                self._unknown.add(message)
                self._told.pop((partition, offset), None)
        self._placed.clear()

    def on_acknowledged(self, event: Acknowledged) -> None:
        """Compare with what was told before."""
        if event.message in self._unknown and event.message not in self._placed:
            return
        before = self._told.setdefault((event.partition, event.offset), event.message)
        if before != event.message:
            self.broken(event.at_ms, f"{event}, and that was the place of {before}")


class SeenOffsetsOnce(Checker):
    """An offset at which readers could see a message is never another one's, whatever a power cut
    has taken: who has passed the offset would never be given the other message.

    A disk that comes back older is excused: how far its log had come then, nobody may have heard.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[PartitionId, Offset], str] = {}

    def on_harmed(self, event: Harmed) -> None:
        """An older disk knows less than readers do."""
        if event.loses and event.how != POWER:
            self._seen.clear()

    def on_appended(self, event: Appended) -> None:
        """Compare with what was seen there before."""
        before = self._seen.setdefault((event.partition, event.offset), event.message)
        if before != event.message:
            self.broken(event.at_ms, f"{event}, and that was the place of {before}")


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
