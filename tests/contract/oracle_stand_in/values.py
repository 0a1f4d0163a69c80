"""Single values on the wire: how the database writes numbers, doubles, times and intervals.

Rules of this file: pure functions from bytes to Python values and back. NUMBER is sign, base-100
exponent and base-100 digits; BINARY_DOUBLE is IEEE 754 with the sign bit turned so that bytes
sort as numbers do; DATE is seven bytes, TIMESTAMP appends nanoseconds, WITH TIME ZONE appends the
offset while the clock part is in UTC; INTERVAL DAY TO SECOND has every part offset so that none
is negative. The empty string and null are one thing to the database.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum

Value = str | int | Decimal | float | bytes | datetime | timedelta | None

CHARSET_UTF8 = 873
CHARSET_UTF16 = 2_000
FORM_NATIONAL = 2
_INTERVAL_BASE = 1 << 31
_NUMBER_NEGATIVE_END = 102


class TypeCode(IntEnum):
    """The database's numbers for the types that the stand-in knows."""

    VARCHAR = 1
    NUMBER = 2
    BINARY_INTEGER = 3
    LONG = 8
    DATE = 12
    RAW = 23
    LONG_RAW = 24
    CHAR = 96
    BINARY_FLOAT = 100
    BINARY_DOUBLE = 101
    CLOB = 112
    TIMESTAMP = 180
    TIMESTAMP_TZ = 181
    INTERVAL_DS = 183
    TIMESTAMP_LTZ = 231


TEXTS = frozenset({TypeCode.VARCHAR, TypeCode.CHAR, TypeCode.LONG})
NUMBERS = frozenset({TypeCode.NUMBER, TypeCode.BINARY_INTEGER})
ZONED = frozenset({TypeCode.TIMESTAMP_TZ, TypeCode.TIMESTAMP_LTZ})


def decode(code: TypeCode, data: bytes | None, form: int = 1) -> Value:
    """What a bind of type `code` says; `form` 2 is the national character set."""
    if data is None:
        return None
    if code in TEXTS:
        return data.decode("utf-16-be" if form == FORM_NATIONAL else "utf-8")
    if code in NUMBERS:
        return decode_number(data)
    if code == TypeCode.BINARY_DOUBLE:
        return _decode_binary(data, ">d")
    if code == TypeCode.BINARY_FLOAT:
        return _decode_binary(data, ">f")
    if code in (TypeCode.DATE, TypeCode.TIMESTAMP) or code in ZONED:
        return _decode_time(data, zoned=code in ZONED)
    if code == TypeCode.INTERVAL_DS:
        return _decode_interval(data)
    return data


def encode(code: TypeCode, value: Value) -> bytes | None:
    """A column's value as the database sends it; None and '' are null."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        return _encode_time(value, code)
    if isinstance(value, timedelta):
        return _encode_interval(value)
    if isinstance(value, bytes):
        return value
    if code == TypeCode.BINARY_DOUBLE:
        return _encode_double(float(value))
    return encode_number(Decimal(value))


def decode_number(data: bytes) -> Decimal:
    """NUMBER to Decimal, exactly."""
    if data == b"\x80":
        return Decimal(0)
    positive = bool(data[0] & 0x80)
    exponent = (data[0] if positive else ~data[0] & 0xFF) - 193
    body = data[1:]
    if not positive and body and body[-1] == _NUMBER_NEGATIVE_END:
        body = body[:-1]
    pairs = [byte - 1 if positive else 101 - byte for byte in body]
    digits = tuple(digit for pair in pairs for digit in divmod(pair, 10))
    # Made from its digits, for arithmetic would round it to the context's precision.
    return Decimal((0 if positive else 1, digits, 2 * (exponent - len(pairs) + 1)))


def encode_number(number: Decimal) -> bytes:
    """Decimal to NUMBER, exactly for the 38 digits that a NUMBER holds."""
    sign, digits, power = number.as_tuple()
    assert isinstance(power, int), "NUMBER holds neither infinity nor NaN"
    if not any(digits):
        return b"\x80"
    text = "".join(map(str, digits))
    if power % 2:
        text, power = text + "0", power - 1
    if len(text) % 2:
        text = "0" + text
    pairs = [int(text[at : at + 2]) for at in range(0, len(text), 2)]
    exponent = len(pairs) - 1 + power // 2
    while pairs[0] == 0:
        pairs.pop(0)
        exponent -= 1
    while pairs[-1] == 0:
        pairs.pop()
    head = 193 + exponent
    if not sign:
        return bytes([head, *(pair + 1 for pair in pairs)])
    return bytes([~head & 0xFF, *(101 - pair for pair in pairs), _NUMBER_NEGATIVE_END])


def _decode_binary(data: bytes, form: str) -> float:
    bits = 8 * len(data)
    number = int.from_bytes(data, "big")
    top = 1 << (bits - 1)
    number = number ^ top if number & top else ~number & ((1 << bits) - 1)
    return float(struct.unpack(form, number.to_bytes(len(data), "big"))[0])


def _encode_double(value: float) -> bytes:
    (number,) = struct.unpack(">Q", struct.pack(">d", value))
    top = 1 << 63
    return int(number ^ top if not number & top else ~number & ((1 << 64) - 1)).to_bytes(8, "big")


def _decode_time(data: bytes, *, zoned: bool) -> datetime:
    century, year, month, day, hour, minute, second = data[:7]
    nanos = int.from_bytes(data[7:11], "big") if len(data) >= 11 else 0
    return datetime(
        (century - 100) * 100 + year - 100,
        month,
        day,
        hour - 1,
        minute - 1,
        second - 1,
        nanos // 1_000,
        tzinfo=UTC if zoned else None,
    )


def _encode_time(value: datetime, code: TypeCode) -> bytes:
    if value.tzinfo is not None:
        value = value.astimezone(UTC)
    seconds = bytes(
        [
            value.year // 100 + 100,
            value.year % 100 + 100,
            value.month,
            value.day,
            value.hour + 1,
            value.minute + 1,
            value.second + 1,
        ]
    )
    if code == TypeCode.DATE:
        return seconds
    stamp = seconds + (value.microsecond * 1_000).to_bytes(4, "big")
    return stamp + bytes([20, 60]) if code in ZONED else stamp


def _decode_interval(data: bytes) -> timedelta:
    days = int.from_bytes(data[:4], "big") - _INTERVAL_BASE
    nanos = int.from_bytes(data[7:11], "big") - _INTERVAL_BASE
    hours, minutes, seconds = (part - 60 for part in data[4:7])
    return timedelta(
        days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=nanos // 1_000
    )


def _encode_interval(value: timedelta) -> bytes:
    sign = -1 if value < timedelta(0) else 1
    size = abs(value)
    minutes, seconds = divmod(size.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return (
        (_INTERVAL_BASE + sign * size.days).to_bytes(4, "big")
        + bytes(60 + sign * part for part in (hours, minutes, seconds))
        + (_INTERVAL_BASE + sign * size.microseconds * 1_000).to_bytes(4, "big")
    )
