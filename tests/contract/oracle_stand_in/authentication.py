"""Logging on: the challenge and answer of O5LOGON with the 12c verifier, the server's side.

What it imitates. Phase one: the server sends its half of a session key, encrypted under a hash of
the password, with the salts. Phase two: the client sends its half the same way and the password
encrypted under the key that both halves make; the server proves itself with a text of its own
under that key. A wrong password, or an unknown user, is ORA-01017 in phase two.
"""

from __future__ import annotations

import hashlib
import secrets

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from tests.contract.oracle_stand_in.framing import MessageReader

VERIFIER_12C = 0x4815
_VERIFIER_ROUNDS = 4_096
_KEY_ROUNDS = 3
_BLOCK_BYTES = 16
_PROOF = b"SERVER_TO_CLIENT"

Pairs = list[tuple[str, str, int]]


def read_request(message: MessageReader) -> tuple[str, dict[str, str]]:
    """The user name and the key/value pairs of either phase."""
    message.byte()
    message.skip_integers(2)
    message.byte()
    count = message.integer()
    message.raw(2)
    user = (message.octets() or b"").decode()
    pairs = {}
    for _ in range(count):
        key = message.counted_octets().decode().rstrip("\0")
        pairs[key] = message.counted_octets().decode()
        message.integer()
    return user, pairs


class Logon:
    """One client's logon, from the challenge to the verdict."""

    def __init__(self, password: str | None) -> None:
        """`password` is None for a user that does not exist: no answer will fit."""
        self._password = secrets.token_bytes(16) if password is None else password.encode()
        self._verifier_salt = secrets.token_bytes(16)
        self._key_salt = secrets.token_bytes(16)
        self._server_half = secrets.token_bytes(32)
        stretched = hashlib.pbkdf2_hmac(
            "sha512",
            self._password,
            self._verifier_salt + b"AUTH_PBKDF2_SPEEDY_KEY",
            _VERIFIER_ROUNDS,
            64,
        )
        self._password_hash = hashlib.sha512(stretched + self._verifier_salt).digest()[:32]

    def challenge(self) -> Pairs:
        """What phase one answers."""
        return [
            ("AUTH_SESSKEY", _hex(_encrypt(self._password_hash, self._server_half)), 0),
            ("AUTH_VFR_DATA", _hex(self._verifier_salt), VERIFIER_12C),
            ("AUTH_PBKDF2_CSK_SALT", _hex(self._key_salt), 0),
            ("AUTH_PBKDF2_VGEN_COUNT", str(_VERIFIER_ROUNDS), 0),
            ("AUTH_PBKDF2_SDER_COUNT", str(_KEY_ROUNDS), 0),
        ]

    def verify(self, answer: dict[str, str], session_id: int) -> Pairs | None:
        """What phase two answers when the password was right, else None."""
        client_half = _decrypt(self._password_hash, bytes.fromhex(answer["AUTH_SESSKEY"]))
        both = _hex(client_half[:32] + self._server_half).encode()
        key = hashlib.pbkdf2_hmac("sha512", both, self._key_salt, _KEY_ROUNDS, 32)
        salted = _unpad(_decrypt(key, bytes.fromhex(answer["AUTH_PASSWORD"])))
        if salted is None or not secrets.compare_digest(salted[_BLOCK_BYTES:], self._password):
            return None
        proof = _encrypt(key, _pad(secrets.token_bytes(_BLOCK_BYTES) + _PROOF))
        return [
            ("AUTH_VERSION_NO", str(19 << 24), 0),
            ("AUTH_SESSION_ID", str(session_id), 0),
            ("AUTH_SERIAL_NUM", "1", 0),
            ("AUTH_SC_SERVICE_NAME", "standin", 0),
            ("AUTH_INSTANCENAME", "standin", 0),
            ("AUTH_MAX_OPEN_CURSORS", "300", 0),
            ("AUTH_MAX_IDEN_LENGTH", "128", 0),
            ("AUTH_SVR_RESPONSE", _hex(proof), 0),
        ]


def _hex(data: bytes) -> str:
    return data.hex().upper()


def _encrypt(key: bytes, data: bytes) -> bytes:
    encryptor = Cipher(AES(key), CBC(bytes(_BLOCK_BYTES))).encryptor()
    return encryptor.update(data) + encryptor.finalize()


def _decrypt(key: bytes, data: bytes) -> bytes:
    decryptor = Cipher(AES(key), CBC(bytes(_BLOCK_BYTES))).decryptor()
    return decryptor.update(data) + decryptor.finalize()


def _pad(data: bytes) -> bytes:
    missing = _BLOCK_BYTES - len(data) % _BLOCK_BYTES
    return data + bytes([missing]) * missing


def _unpad(data: bytes) -> bytes | None:
    size = data[-1] if data else 0
    if not 1 <= size <= _BLOCK_BYTES or data[-size:] != bytes([size]) * size:
        return None
    return data[:-size]
