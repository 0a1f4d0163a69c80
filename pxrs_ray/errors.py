"""Every error that PXRS raises on purpose, in one tree.

Rules of this file: one class an outcome that a caller can act on differently, one
"Raised when ..." sentence each, and the values that name the culprit as attributes. Errors
travel between Ray processes by pickle, so each class rebuilds itself from `args`.
"""

from __future__ import annotations

# A week: nothing may be wanted later than most logs are kept.
RETRY_AFTER_SECONDS_MAX = 604_800


class PxrsError(Exception):
    """The root: catching it catches every error that PXRS raises on purpose."""


class ConfigError(PxrsError, ValueError):
    """Raised when an option has a wrong name or value; nothing was started or changed."""


class UsageError(PxrsError, ValueError):
    """Raised when a call's arguments make no sense; nothing was changed."""


class DependencyMissing(PxrsError, ImportError):
    """Raised when an optional package, Java or a server is needed and not there."""


class NotFound(PxrsError, LookupError):
    """Raised when a topology, queue, group, partition or member of that name does not exist."""


class AlreadyExists(PxrsError):
    """Raised when something else already runs under the name that was asked for."""


class LockHeld(AlreadyExists):
    """Raised when another process still holds a file; it is given back when that process ends."""


class Fenced(PxrsError):
    """Raised when a call carries an epoch, incarnation or generation that is no longer current.

    The caller lost its ownership: it must drop the partition (or itself) and never retry the call.
    """


class UnknownMember(Fenced):
    """Raised when a member's incarnation is not registered: it must join again."""


class CoordinatorDeposed(Fenced):
    """Raised when a coordinator finds that a newer generation has taken its place."""


class UnsupportedVersion(PxrsError):
    """Raised when a process runs other code than its caller: one cannot understand the other."""


class IllegalTransition(PxrsError):
    """Raised when an event makes no sense in the present state; the state is unchanged."""


class RetryAfter(PxrsError):
    """Raised by a handler that wants its message again, `seconds` later: no failed attempt.

    Other keys go on meanwhile (`by_key`), or other partitions (`ordered`). `why` is for the log.
    """

    def __init__(self, seconds: float, why: str = "") -> None:
        if not 0 <= seconds <= RETRY_AFTER_SECONDS_MAX:
            raise UsageError(
                f"RetryAfter takes 0 to {RETRY_AFTER_SECONDS_MAX} seconds, not {seconds!r}"
            )
        super().__init__(seconds, why)
        self.seconds = seconds
        self.why = why

    def __str__(self) -> str:
        return f"again in {self.seconds:g} s" + (f": {self.why}" if self.why else "")


class DeadlineExceeded(PxrsError, TimeoutError):
    """Raised when a wait ended at its deadline; the message names what was waited for."""


class BufferAway(PxrsError):
    """Raised when a buffer could not be asked; whether the call happened is unknown."""


class NotLeading(BufferAway):
    """Raised by a replica of a buffer that does not lead: another one does, or is about to."""


class ProtocolError(PxrsError):
    """Raised when the other end of a connection says what is no message; the connection ends."""


class SlotWaits(BufferAway):
    """Raised when a buffer has no host now: it waits for its disk to come back."""


class LogError(PxrsError):
    """The root of what a partition log can report."""


class LogCorrupted(LogError):
    """Raised when a stored frame fails its checksum; names file, position and offset."""


class OffsetOutOfRange(LogError, LookupError):
    """Raised when a read starts before the first kept offset or behind the end of the log."""


class LogLost(LogError):
    """Raised when a log that should hold data came back without it (disk or node lost)."""


class LogReplaced(LogLost):
    """Raised when another log lies in the place of the one that is meant; it is left as it is."""


class LogAway(LogError):
    """Raised when a log cannot be used for a reason that passes: it heals by itself, try again."""


class LeaseOver(LogAway):
    """Raised when a buffer has no leave to serve now: it waits for its coordinator.

    Of an append nobody knows whether it is kept; the same one again is not kept twice.
    """


class DiskFull(LogError):
    """Raised when the disk refused an append; nothing of the batch was kept."""


class RetentionBlocked(LogError):
    """Raised when truncation would drop messages that a group has not passed yet."""


class ProducerError(PxrsError):
    """The root of what a call of a producer can raise."""


class PartitionFull(ProducerError):
    """Raised when a partition's bound is reached: wait for its readers, or produce less."""


class MessageTooLarge(ProducerError):
    """Raised when one message is larger than the configured limit; nothing was sent."""


class SequenceGap(ProducerError):
    """Raised when an append's sequence skips ahead: an earlier append was lost."""


class SequenceConflict(ProducerError):
    """Raised when a repeated append carries other messages than the first time."""


class FeedConflict(ProducerError):
    """Raised when a feed brings other data than was fed under its id before."""


class ProducerFenced(ProducerError, Fenced):
    """Raised when an append comes from a former life of a producer that was started anew."""


class StoreError(PxrsError):
    """The root of what a registry store can report."""


class StoreUnavailable(StoreError):
    """Raised when a store's outcome is still unknown at the deadline.

    The write may or may not have happened, now or later: only retrying the very same
    conditional write, or reading, can tell.
    """


class RegistryAway(StoreUnavailable):
    """Raised when the registry is known to be away: the call has changed nothing."""


class ChangeWaits(StoreUnavailable):
    """Raised when a change was begun and waits for the registry: it is made when that is back."""


class StoreCorrupted(StoreError):
    """Raised when the stored registry contradicts itself or has lost accepted writes."""


class StoreSchemaError(StoreError):
    """Raised when the stored schema is newer than this version, or cannot be upgraded."""


class RegistryNotHere(StoreCorrupted, StoreSchemaError):
    """Raised when there is no registry where it should be; nothing is made in its place."""


class NotHeld(PxrsError):
    """Raised when a handler acts for a partition that is not surely its consumer's any more.

    Its lease is over, or the partition was lost; nothing was written. It is no failed attempt.
    """


class SinkConflict(PxrsError):
    """Raised when a sink's transaction cannot be committed now; nothing was written: try again."""


class BadRecord(PxrsError):
    """Raised for a record of a source that no handler can be given; says what is wrong with it."""


class HandlerError(PxrsError):
    """Raised when a message handler cannot be imported, pickled or called."""


class HandlerKilled(HandlerError):
    """Raised for a message in whose call the process died; says how often, and of what."""


class HandlerTimeout(HandlerError, TimeoutError):
    """Raised when a handler outlived its time; names message, step, attempt and partition."""
