"""The hash functions over many keys of one length at once, equal to `scalar_hashes` bit for bit.

Rules of this file: one numpy operation works on all keys, in place where it can, so that the
temporaries stay in the cache. Arithmetic on unsigned arrays wraps silently, as hashing wants.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pxrs_ray.partitioning.key_columns import Ints, KeyBytes
from pxrs_ray.partitioning.scalar_hashes import MASK32, MASK64, MURMUR32, MURMUR128, MURMUR_FMIX64

U64: TypeAlias = npt.NDArray[np.uint64]
U32: TypeAlias = npt.NDArray[np.uint32]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def xxh64(keys: KeyBytes, seed: int) -> Ints:
    """`scalar.xxh64` of every key."""
    spare = np.empty(keys.count, np.uint64)
    if keys.width >= 32:
        h = _xxh64_stripes(keys, seed, spare)
    else:
        h = _full(keys, seed + int(_P5))
    h += np.uint64(keys.width)
    for at in range(keys.width // 32 * 32, keys.width - 7, 8):
        h ^= _xxh64_round(keys.u64(at), spare)
        _rotate(h, 27, spare)
        h *= _P1
        h += _P4
    at = keys.width // 8 * 8
    if keys.width - at >= 4:
        h ^= keys.u32(at) * _P1
        _rotate(h, 23, spare)
        h *= _P2
        h += _P3
        at += 4
    for last in range(at, keys.width):
        h ^= keys.load(last, "u1") * _P5
        _rotate(h, 11, spare)
        h *= _P1
    _xor_shift(h, 33, spare)
    h *= _P2
    _xor_shift(h, 29, spare)
    h *= _P3
    _xor_shift(h, 32, spare)
    return h.view(np.int64)


def murmur3_128(keys: KeyBytes, seed: int) -> Ints:
    """`scalar.murmur3_128` of every key."""
    spare = np.empty(keys.count, np.uint64)
    c1, c2 = (np.uint64(c) for c in MURMUR128)
    h1, h2 = _full(keys, seed & MASK32), _full(keys, seed & MASK32)
    blocks = keys.width // 16 * 16
    for at in range(0, blocks, 16):
        h1 ^= _murmur_mix(keys.u64(at), c1, 31, c2, spare)
        _rotate(h1, 27, spare)
        h1 += h2
        h1 *= np.uint64(5)
        h1 += np.uint64(0x52DCE729)
        h2 ^= _murmur_mix(keys.u64(at + 8), c2, 33, c1, spare)
        _rotate(h2, 31, spare)
        h2 += h1
        h2 *= np.uint64(5)
        h2 += np.uint64(0x38495AB5)
    rest = keys.width - blocks
    if rest > 8:
        h2 ^= _murmur_mix(keys.tail(blocks + 8), c2, 33, c1, spare)
    if rest:
        first = keys.u64(blocks) if rest >= 8 else keys.tail(blocks)
        h1 ^= _murmur_mix(first, c1, 31, c2, spare)
    h1 ^= np.uint64(keys.width)
    h2 ^= np.uint64(keys.width)
    h1 += h2
    h2 += h1
    for h in (h1, h2):
        for c in MURMUR_FMIX64:
            _xor_shift(h, 33, spare)
            h *= np.uint64(c)
        _xor_shift(h, 33, spare)
    h1 += h2
    return h1.view(np.int64)


def murmur3_32(keys: KeyBytes, seed: int) -> Ints:
    """`scalar.murmur3_32` of every key."""
    spare = np.empty(keys.count, np.uint32)
    c1, c2, c3, c4, c5 = (np.uint32(c) for c in MURMUR32)
    h = np.full(keys.count, seed & MASK32, np.uint32)
    words = keys.width // 4 * 4
    for at in range(0, words, 4):
        h ^= _murmur_mix(keys.u32(at), c1, 15, c2, spare)
        _rotate(h, 13, spare)
        h *= np.uint32(5)
        h += c3
    if words < keys.width:
        h ^= _murmur_mix(keys.tail(words).astype(np.uint32), c1, 15, c2, spare)
    h ^= np.uint32(keys.width)
    _xor_shift(h, 16, spare)
    h *= c4
    _xor_shift(h, 13, spare)
    h *= c5
    _xor_shift(h, 16, spare)
    return h.view(np.int32).astype(np.int64)


def crc32(keys: KeyBytes, seed: int) -> Ints:
    """`scalar.crc32` of every key, four bytes at a step."""
    del seed
    c = np.full(keys.count, MASK32, np.uint32)
    words = keys.width // 4 * 4
    byte = np.uint32(0xFF)
    for at in range(0, words, 4):
        c ^= keys.u32(at)
        parts = [_CRC[3 - i].take(c >> np.uint32(8 * i) & byte) for i in range(4)]
        c = parts[0] ^ parts[1] ^ parts[2] ^ parts[3]
    for at in range(words, keys.width):
        c = _CRC[0].take((c ^ keys.load(at, "u1")) & byte) ^ (c >> np.uint32(8))
    return (~c).astype(np.int64)


def java(units: KeyBytes, seed: int) -> Ints:
    """`scalar.java` of every key, given as UTF-16 units."""
    del seed
    h = np.zeros(units.count, np.uint32)
    for at in range(0, units.width, 2):
        h *= np.uint32(31)
        h += units.load(at, "u2")
    return h.view(np.int32).astype(np.int64)


def _xxh64_stripes(keys: KeyBytes, seed: int, spare: U64) -> U64:
    """The part of XXH64 that eats 32 bytes at a time."""
    starts = (int(_P1) + int(_P2), int(_P2), 0, -int(_P1))
    lines = [_full(keys, seed + start) for start in starts]
    for at in range(0, keys.width - 31, 32):
        for i, line in enumerate(lines):
            line += keys.u64(at + 8 * i) * _P2
            _rotate(line, 31, spare)
            line *= _P1
    h = np.zeros(keys.count, np.uint64)
    for line, by in zip(lines, (1, 7, 12, 18), strict=True):
        turned = line.copy()
        _rotate(turned, by, spare)
        h += turned
    for line in lines:
        h ^= _xxh64_round(line, spare)
        h *= _P1
        h += _P4
    return h


def _xxh64_round(words: U64, spare: U64) -> U64:
    words *= _P2
    _rotate(words, 31, spare)
    words *= _P1
    return words


def _murmur_mix(words: Any, before: Any, by: int, after: Any, spare: Any) -> Any:
    words *= before
    _rotate(words, by, spare)
    words *= after
    return words


def _rotate(words: Any, by: int, spare: Any) -> None:
    """Rotate left in place."""
    bits = words.dtype.itemsize * 8
    np.left_shift(words, words.dtype.type(by), out=spare)
    np.right_shift(words, words.dtype.type(bits - by), out=words)
    np.bitwise_or(words, spare, out=words)


def _xor_shift(words: Any, by: int, spare: Any) -> None:
    np.right_shift(words, words.dtype.type(by), out=spare)
    np.bitwise_xor(words, spare, out=words)


def _full(keys: KeyBytes, value: int) -> U64:
    return np.full(keys.count, value & MASK64, np.uint64)


def _crc_tables() -> list[U32]:
    """Table k tells what a byte does to the remainder when k more bytes follow it."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(0xEDB88320), table >> 1)
    table = table.astype(np.uint32)
    tables = [table]
    for _ in range(3):
        last = tables[-1]
        tables.append(table[last & np.uint32(0xFF)] ^ (last >> np.uint32(8)))
    return tables


_CRC = _crc_tables()
