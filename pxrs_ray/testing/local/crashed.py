"""`ConsumerCrashed`: how the end of a consumer's process gets out of its handler."""

from __future__ import annotations


class ConsumerCrashed(BaseException):
    """Ends the handler's call in the middle of which its consumer was crashed.

    It is no Exception, so that a handler's `except Exception` does not survive its own death.
    """
