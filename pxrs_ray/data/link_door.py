"""Who may talk on a stream: tickets, and the greeting with which a connection begins. Pure.

Rules of this file. A caller asks for a ticket where it is known already (a call of Ray's). A ticket
opens one connection, once, and soon: what was overheard and is played again opens none. The first
bytes of a connection prove, without telling it, that the caller has the ticket's key; before that
nothing is answered and nothing else of it is read or kept. Then the other end proves that it has
the key too, and before that the caller believes nothing. Proofs are compared in constant time.
"""

from __future__ import annotations

import hmac
import secrets
import struct

from pxrs_ray.data.link_messages import VERSION
from pxrs_ray.errors import ProtocolError
from pxrs_ray.late_dataclass import dataclass

MAGIC = b"PXLK"
TICKET_BYTES = NONCE_BYTES = 16
KEY_BYTES = PROOF_BYTES = 32
_GREETING = struct.Struct(f"<4sH{TICKET_BYTES}s{NONCE_BYTES}s")
GREETING_BYTES = _GREETING.size + PROOF_BYTES
TICKETS_MAX = 1_000
TICKET_S = 60.0


@dataclass(frozen=True, slots=True)
class LinkOffer:
    """Where a buffer takes connections, of which version, and the ticket for one of them.

    `fingerprint` is the SHA-256 of the certificate that the buffer shows; b"" is no TLS.
    """

    address: str
    version: int
    ticket: bytes
    key: bytes
    fingerprint: bytes = b""

    def __repr__(self) -> str:
        """Without the key: an offer that somebody logs opens nothing."""
        return f"LinkOffer({self.address!r}, version {self.version})"


@dataclass(frozen=True, slots=True)
class GivenTicket:
    """What was given out: until when it is good, on which side of the door, and for what."""

    key: bytes
    until_s: float
    network: bool = False
    much: bool = False


class Tickets:
    """The tickets that were given out and not used yet; the oldest goes where there are too
    many."""

    def __init__(self) -> None:
        self._given: dict[bytes, GivenTicket] = {}

    def offer(
        self,
        address: str,
        now_s: float,
        *,
        network: bool = False,
        much: bool = False,
        fingerprint: bytes = b"",
    ) -> LinkOffer:
        """A new ticket for a connection to `address`; of the `network`, or of this node."""
        self._forget(now_s)
        while len(self._given) >= TICKETS_MAX:
            del self._given[next(iter(self._given))]
        ticket, key = secrets.token_bytes(TICKET_BYTES), secrets.token_bytes(KEY_BYTES)
        self._given[ticket] = GivenTicket(key, now_s + TICKET_S, network, much)
        return LinkOffer(address, VERSION, ticket, key, fingerprint)

    def _forget(self, now_s: float) -> None:
        while self._given and self._given[next(iter(self._given))].until_s <= now_s:
            del self._given[next(iter(self._given))]

    def admit(self, greeting: bytes, now_s: float, *, network: bool = False) -> tuple[bytes, bool]:
        """Take a ticket back for a whole greeting; answers the proof for the caller, and whether
        the connection may carry much.

        Raises ProtocolError: hang up then, without a word.
        """
        self._forget(now_s)
        fields = greeting[: _GREETING.size]
        magic, version, number, _ = _GREETING.unpack(fields)
        ticket = self._given.get(number)
        key = bytes(KEY_BYTES) if ticket is None else ticket.key
        proven = hmac.compare_digest(greeting[_GREETING.size :], _proof(key, b"caller", fields))
        if magic == MAGIC and version != VERSION:
            raise ProtocolError(
                f"a caller speaks version {version} of links, and this is {VERSION}"
            )
        if magic != MAGIC or ticket is None or not proven or ticket.network != network:
            raise ProtocolError("a connection does not begin as one that is welcome does")
        del self._given[number]
        return _proof(key, b"buffer", fields), ticket.much


def greeting(offer: LinkOffer) -> tuple[bytes, bytes]:
    """The first bytes of a connection, and the proof with which the other end must answer."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    fields = _GREETING.pack(MAGIC, offer.version, offer.ticket, nonce)
    return fields + _proof(offer.key, b"caller", fields), _proof(offer.key, b"buffer", fields)


def check_welcome(proof: bytes, expected: bytes) -> None:
    """Raises ProtocolError when whoever answers has not the key."""
    if not hmac.compare_digest(proof, expected):
        raise ProtocolError("the other end of a connection is not the one that was meant")


def _proof(key: bytes, who: bytes, fields: bytes) -> bytes:
    return hmac.digest(key, who + fields, "sha256")
