"""The hash functions, one key at a time: bytes and a seed in, a signed integer out.

Rules of this file: short and obvious, because these are the definition that `vector_hashes` must
equal. Seeds wrap to the width that the function has room for.
"""

from __future__ import annotations

import hashlib
import struct
import zlib

import xxhash

from pxrs_ray.errors import UsageError

MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF

# Constants of the published MurmurHash3: x86_32, then x64_128.
MURMUR32 = (0xCC9E2D51, 0x1B873593, 0xE6546B64, 0x85EBCA6B, 0xC2B2AE35)
MURMUR128 = (0x87C37B91114253D5, 0x4CF5AD432745937F)
MURMUR_FMIX64 = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


def xxh64(key: bytes, seed: int) -> int:
    """XXH64; with seed 42 this is Spark's `xxhash64` of the same bytes."""
    return signed(xxhash.xxh64_intdigest(key, seed & MASK64), 64)


def murmur3_128(key: bytes, seed: int) -> int:
    """The first 64 bits of MurmurHash3 x64 128, as Guava's `murmur3_128().asLong()` gives them."""
    c1, c2 = MURMUR128
    h1 = h2 = seed & MASK32
    blocks = len(key) // 16 * 16
    for at in range(0, blocks, 16):
        k1 = int.from_bytes(key[at : at + 8], "little")
        k2 = int.from_bytes(key[at + 8 : at + 16], "little")
        h1 ^= _rotate(k1 * c1 & MASK64, 31, 64) * c2 & MASK64
        h1 = ((_rotate(h1, 27, 64) + h2) * 5 + 0x52DCE729) & MASK64
        h2 ^= _rotate(k2 * c2 & MASK64, 33, 64) * c1 & MASK64
        h2 = ((_rotate(h2, 31, 64) + h1) * 5 + 0x38495AB5) & MASK64
    k1 = int.from_bytes(key[blocks : blocks + 8], "little")
    k2 = int.from_bytes(key[blocks + 8 :], "little")
    h1 ^= _rotate(k1 * c1 & MASK64, 31, 64) * c2 & MASK64
    h2 ^= _rotate(k2 * c2 & MASK64, 33, 64) * c1 & MASK64
    h1 ^= len(key)
    h2 ^= len(key)
    h1 = (h1 + h2) & MASK64
    h2 = (h2 + h1) & MASK64
    return signed(_fmix64(h1) + _fmix64(h2) & MASK64, 64)


def murmur3_32(key: bytes, seed: int) -> int:
    """MurmurHash3 x86 32, signed, as Guava's `murmur3_32_fixed().asInt()` gives it."""
    c1, c2, c3, c4, c5 = MURMUR32
    h = seed & MASK32
    words = len(key) // 4 * 4
    for at in range(0, words, 4):
        k = int.from_bytes(key[at : at + 4], "little")
        h ^= _rotate(k * c1 & MASK32, 15, 32) * c2 & MASK32
        h = (_rotate(h, 13, 32) * 5 + c3) & MASK32
    k = int.from_bytes(key[words:], "little")
    h ^= _rotate(k * c1 & MASK32, 15, 32) * c2 & MASK32
    h ^= len(key)
    h = (h ^ h >> 16) * c4 & MASK32
    h = (h ^ h >> 13) * c5 & MASK32
    return signed(h ^ h >> 16, 32)


def sha256(key: bytes, seed: int) -> int:
    """The first 8 bytes of SHA-256, big-endian: the first 16 digits of the usual hex digest."""
    del seed
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big", signed=True)


def crc32(key: bytes, seed: int) -> int:
    """CRC-32 as zlib, Java and Spark compute it: 0 to 2**32 - 1."""
    del seed
    return zlib.crc32(key)


def java(key: bytes, seed: int) -> int:
    """Java's `String.hashCode` of the UTF-8 text in `key`, over its UTF-16 units."""
    del seed
    h = 0
    for (unit,) in struct.iter_unpack("<H", utf16(key)):
        h = (31 * h + unit) & MASK32
    return signed(h, 32)


def utf16(text: bytes) -> bytes:
    """UTF-8 to little-endian UTF-16. Raises UsageError when it is not UTF-8."""
    try:
        return text.decode("utf-8").encode("utf-16-le")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"hash 'java' is defined on text, and this key is not UTF-8 ({error.reason}): "
            "choose another hash for binary keys"
        ) from None


def signed(value: int, bits: int) -> int:
    """The two's complement reading of the lowest `bits` bits of `value`."""
    value &= (1 << bits) - 1
    return value - (value >> (bits - 1) << bits)


def _rotate(value: int, by: int, bits: int) -> int:
    return (value << by | value >> (bits - by)) & ((1 << bits) - 1)


def _fmix64(k: int) -> int:
    c1, c2 = MURMUR_FMIX64
    k = (k ^ k >> 33) * c1 & MASK64
    k = (k ^ k >> 33) * c2 & MASK64
    return k ^ k >> 33
