"""Removes passwords from every text that a person or a log may see."""

from __future__ import annotations

import re
from typing import TypeVar

HIDDEN = "***"

# Up to the last '@', since people forget to encode one in a password: rather too much than less.
_IN_ADDRESS = re.compile(r"(?P<before>://[^\s:/@]*:)\S*(?=@)")
_IN_QUERY = re.compile(
    r"(?P<before>(?:password|passwd|secret|token|wallet_password)=)[^&\s]*", re.IGNORECASE
)

Value = TypeVar("Value")


def without_secrets(value: Value) -> Value | str:
    """The same value; of a text, the same text with every password in it replaced."""
    if not isinstance(value, str):
        return value
    hidden: str = value
    for pattern in (_IN_ADDRESS, _IN_QUERY):
        hidden = pattern.sub(rf"\g<before>{HIDDEN}", hidden)
    return hidden
