"""Hash functions: published reference values, and columns equal to keys one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.errors import UsageError
from pxrs_ray.partitioning import HASHES, hash_column, hash_key, key_bytes
from pxrs_ray.partitioning.key_columns import BLOCK_KEYS, RUN_KEYS_MAX

FOX = "The quick brown fox jumps over the lazy dog"


def sanity_buffer(length: int) -> bytes:
    """The bytes that xxHash's own sanity check hashes."""
    generator, out = 2654435761, bytearray()
    for _ in range(length):
        out.append(generator >> 56)
        generator = generator * 11400714785074694797 % (1 << 64)
    return bytes(out)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


PRIME32 = 0x9E3779B1

# xxHash's sanity check: length, seed, XXH64; and values by other published ports.
XXH64 = [
    (sanity_buffer(0), 0, 0xEF46DB3751D8E999),
    (sanity_buffer(0), PRIME32, 0xAC75FDA2929B17EF),
    (sanity_buffer(1), 0, 0xE934A84ADB052768),
    (sanity_buffer(1), PRIME32, 0x5014607643A9B4C3),
    (sanity_buffer(4), 0, 0x9136A0DCA57457EE),
    (sanity_buffer(8), 0, 0xCDBCF538E71D1348),
    (sanity_buffer(14), 0, 0x8282DCC4994E35C8),
    (sanity_buffer(14), PRIME32, 0xC3BD6BF63DEB6DF0),
    (sanity_buffer(17), 0, 0x0D39A2D051A30C2C),
    (sanity_buffer(222), 0, 0xB641AE8CB691C174),
    (sanity_buffer(222), PRIME32, 0x20CB8AB7AE10C14A),
    (b"12345678911234567892123456789312", 0, 0x4D2BE36BEEC5C9B1),
    (b"123456789112345678921234567893123", 0, 0x9C9679E3CA2E9BAA),
    (b"abc", 0, 0x44BC2CF5AD770999),
]

# Guava's Murmur3Hash128Test: seed, first 64 bits, text.
MURMUR3_128 = [
    (0, 0x629942693E10F867, "hell"),
    (1, 0xA78DDFF5ADAE8D10, "hello"),
    (2, 0x8A486B23F422E826, "hello "),
    (3, 0x2EA59F466F6BED8C, "hello w"),
    (4, 0x79F6305A386C572C, "hello wo"),
    (5, 0xC2219D213EC1F1B5, "hello wor"),
    (0, 0xE34BBC7BBC071B6C, FOX),
    (0, 0x658CA970FF85269A, FOX.replace("dog", "cog")),
    (0, 0, ""),
]

# The widely published vectors of MurmurHash3 x86 32: key, seed, hash.
MURMUR3_32 = [
    (b"", 0, 0),
    (b"", 1, 0x514E28B7),
    (b"", 0xFFFFFFFF, 0x81F16F39),
    (b"\xff\xff\xff\xff", 0, 0x76293B50),
    (b"\x21\x43\x65\x87", 0, 0xF55B516B),
    (b"\x21\x43\x65\x87", 0x5082EDEE, 0x2362F9DE),
    (b"\x21\x43\x65", 0, 0x7E4A8634),
    (b"\x21\x43", 0, 0xA0F7B07A),
    (b"\x21", 0, 0x72661CF4),
    (b"\0\0\0\0", 0, 0x2362F9DE),
    (b"Hello, world!", 0x9747B28C, 0x24884CBA),
    ("π".encode() * 8, 0x9747B28C, 0xD58063C1),
    (FOX.encode(), 0x9747B28C, 0x2FA826CD),
    (b"a" * 256, 0x9747B28C, 0x37405BDC),
]

OTHERS = [
    # Spark's documentation: xxhash64('ABC'), which is XXH64 with seed 42.
    ("xxh64", "ABC", 4105715581806190027),
    ("crc32", "123456789", 0xCBF43926),
    ("crc32", "", 0),
    ("crc32", FOX, 0x414FA339),
    # NIST's examples: the first 8 bytes of the digest.
    ("sha256", "abc", signed(0xBA7816BF8F01CFEA, 64)),
    ("sha256", "", signed(0xE3B0C44298FC1C14, 64)),
    ("sha256", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 0x248D6A61D20638B8),
    ("java", "", 0),
    ("java", "hello", 99162322),
    ("java", "Aa", 2112),
    ("java", "BB", 2112),
    ("java", "polygenelubricants", -(2**31)),
    # By the definition of String.hashCode over UTF-16 units, here D83D DE00.
    ("java", "\U0001f600", 31 * 0xD83D + 0xDE00),
]

VECTORS = [
    *(("xxh64", key, seed, signed(value, 64)) for key, seed, value in XXH64),
    *(("murmur3_128", text, seed, signed(value, 64)) for seed, value, text in MURMUR3_128),
    *(("murmur3_32", key, seed, signed(value, 32)) for key, seed, value in MURMUR3_32),
    *((name, text, 42, value) for name, text, value in OTHERS),
]


@pytest.mark.parametrize(("name", "key", "seed", "value"), VECTORS)
def test_published_values(name: str, key: str | bytes, seed: int, value: int) -> None:
    assert hash_key(key, name, seed) == value
    # 3,000 of them: enough for every function to be computed in numpy rather than in a loop.
    column = pa.array([key_bytes(key)] * 3_000, pa.binary())
    assert set(hash_column(column, name, seed).tolist()) == {value}


def test_the_default_is_what_spark_computes() -> None:
    assert hash_key("ABC") == hash_key(b"ABC", "xxh64", 42)
    assert hash_key("ABC", "xxh64", -1) == hash_key("ABC", "xxh64", 2**64 - 1)


keys = st.one_of(st.binary(max_size=70), st.sampled_from([b"", b"a" * 31, b"b" * 32, b"c" * 33]))
texts = st.text(st.characters(codec="utf-8"), max_size=24)


@settings(deadline=None)
@given(st.lists(st.none() | keys), st.integers(-(2**63), 2**64 - 1), st.integers(0, 5))
def test_columns_equal_keys_one_by_one(some: list[bytes | None], seed: int, offset: int) -> None:
    for name in HASHES.keys() - {"java"}:
        expected = [hash_key(key or b"", name, seed) for key in some]
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
            column = pa.array(some, kind)
            assert hash_column(column, name, seed).tolist() == expected
            assert hash_column(column[offset:], name, seed).tolist() == expected[offset:]


@settings(deadline=None)
@given(st.lists(st.none() | texts), st.integers(0, 5))
def test_text_columns_equal_keys_one_by_one(some: list[str | None], offset: int) -> None:
    for name in HASHES:
        expected = [hash_key(key or "", name) for key in some]
        for kind in (pa.string(), pa.large_string(), pa.string_view()):
            column = pa.array(some, kind)
            assert hash_column(column, name).tolist() == expected
            assert hash_column(column[offset:], name).tolist() == expected[offset:]


@pytest.mark.parametrize("name", HASHES)
@pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 45, 64])
def test_every_kernel_at_every_width(name: str, width: int) -> None:
    """Long enough that no function falls back to the loop: one width, and it among others."""
    some = [f"{i * 7919:064d}"[-width:] if width else "" for i in range(1_500)]
    expected = [hash_key(key, name) for key in some]
    assert hash_column(pa.array(some), name).tolist() == expected
    mixed = [text for key in some for text in (key, key + "x")]
    assert hash_column(pa.array(mixed), name)[::2].tolist() == expected


@pytest.mark.parametrize("name", ["xxh64", "murmur3_32"])
def test_columns_longer_than_the_cut(name: str) -> None:
    count = RUN_KEYS_MAX * 2 + 7
    fixed = [b"%012d" % i for i in range(count)]
    assert hash_column(pa.array(fixed), name).tolist() == [hash_key(key, name) for key in fixed]
    mixed = [b"%d" % i for i in range(BLOCK_KEYS + 1_111)]
    hashes = hash_column(pa.array(mixed), name)
    for row in (0, 9, 10, RUN_KEYS_MAX, BLOCK_KEYS - 1, BLOCK_KEYS, len(mixed) - 1):
        assert hashes[row] == hash_key(mixed[row], name)


def test_chunks_dictionaries_and_fixed_sizes_are_hashed_as_what_they_hold() -> None:
    some = ["a", None, "bc", "a"]
    expected = hash_column(pa.array(some)).tolist()
    assert hash_column(pa.chunked_array([some[:1], [], some[1:]], pa.string())).tolist() == expected
    assert hash_column(pa.array(some).dictionary_encode()).tolist() == expected
    pair = pa.array([b"ab", None, b"cd"], pa.binary(2))
    assert hash_column(pair).tolist() == [hash_key("ab"), hash_key(""), hash_key("cd")]
    assert hash_column(pa.chunked_array([], pa.string())).tolist() == []


def test_what_lies_under_a_null_is_not_hashed() -> None:
    junk = pa.array([b"ok", b"\xff\xfe junk", b"ok"], pa.binary())
    column = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\x05"), *junk.buffers()[1:]], null_count=1
    )
    for name in HASHES:
        assert hash_column(column, name).tolist() == [
            hash_key(key, name) for key in ("ok", "", "ok")
        ]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="lone surrogate"):
        hash_key(text)


@pytest.mark.parametrize("some", [[b"\xff"], [b"\xc3", b"\xa9"], [b"ok", b"\xe2\x82"]])
def test_java_refuses_keys_that_are_not_text(some: list[bytes]) -> None:
    with pytest.raises(UsageError, match="text"):
        hash_column(pa.array(some, pa.binary()), "java")
    with pytest.raises(UsageError, match="not UTF-8"):
        hash_key(some[-1], "java")


def test_nonsense_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="unknown hash 'murmur': did you mean 'murmur3_32'"):
        hash_key("a", "murmur")
    with pytest.raises(UsageError, match="not int64"):
        hash_column(pa.array([1, 2]))
    with pytest.raises(UsageError, match="not int"):
        hash_key(7)  # type: ignore[arg-type]
