"""`TlsStream`: one end's TLS over bytes that somebody else carries, and the contexts of the files
that Ray uses. Pure.

Rules of this file. Both ends show a certificate that the authority of the cluster has signed. A
caller also knows which one to expect, for the offer that it got through Ray names its fingerprint:
so no other member of the cluster can stand in between, whatever names are in certificates. What is
said before the handshake is over waits, and what comes before it is bounded.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Mapping
from pathlib import Path

from pxrs_ray.errors import ProtocolError
from pxrs_ray.late_dataclass import dataclass

HANDSHAKE_BYTES_MAX = 64 << 10
_RECORD_BYTES = 16 << 10
_YES = ("1", "true")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one process: what it shows, and by whom others' must be signed."""

    certificate: str
    key: str
    authority: str

    def context(self, *, server_side: bool) -> ssl.SSLContext:
        """A context of what the files hold now. Raises OSError, which an ssl.SSLError is too."""
        protocol = ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT
        made = ssl.SSLContext(protocol)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.check_hostname = False  # the fingerprint says more; see the rules of this file
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_cert_chain(self.certificate, self.key)
        made.load_verify_locations(self.authority)
        return made

    def fingerprint(self) -> bytes:
        """The SHA-256 of the certificate that is shown."""
        text = Path(self.certificate).read_text(encoding="ascii", errors="replace")
        begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
        if begin < 0 or end < begin:
            raise OSError(f"{self.certificate} holds no certificate")
        whole = text[begin : end + len(ssl.PEM_FOOTER)]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(whole)).digest()


def tls_files(environment: Mapping[str, str]) -> TlsFiles | None:
    """The files that Ray uses between its processes; None where it uses no TLS.

    Raises OSError where it says that it does, and does not say which.
    """
    if environment.get("RAY_USE_TLS", "0").lower() not in _YES:
        return None
    names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise OSError(f"RAY_USE_TLS is set, but not {' and '.join(missing)}")
    return TlsFiles(*(environment[name] for name in names))


class TlsStream:
    """See the rules at the head of this file. Not for two threads at once."""

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, fingerprint: bytes = b""
    ) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server_side)
        self._fingerprint = fingerprint
        self._waiting = b""
        self._came_bytes = 0
        self.met = False

    def begin(self) -> bytes:
        """What is to be sent first; b"" for the end that is called."""
        return self._shake_hands()

    def received(self, data: bytes) -> tuple[bytes, bytes]:
        """What `data` says, and what is to be sent on account of it. Raises ProtocolError."""
        self._in.write(data)
        said = b""
        if not self.met:
            self._came_bytes += len(data)
            if self._came_bytes > HANDSHAKE_BYTES_MAX:
                raise ProtocolError("a TLS handshake does not end")
            said = self._shake_hands()
        return (self._read() if self.met else b""), said + self._out.read()

    def sealed(self, data: bytes | memoryview) -> bytes:
        """What is to be sent for `data`; b"" while it waits for the handshake."""
        if not self.met:
            self._waiting += data
            return b""
        view = memoryview(data).cast("B")
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            raise _broken(error) from error
        return self._out.read()

    def _shake_hands(self) -> bytes:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._out.read()
        except ssl.SSLError as error:
            raise _broken(error) from error
        shown = self._tls.getpeercert(binary_form=True) or b""
        found = hashlib.sha256(shown).digest()
        if self._fingerprint and not hmac.compare_digest(found, self._fingerprint):
            raise ProtocolError("the other end shows another certificate than was meant")
        self.met = True
        waiting, self._waiting = self._waiting, b""
        return self._out.read() + (self.sealed(waiting) if waiting else b"")

    def _read(self) -> bytes:
        parts = []
        try:
            while part := self._tls.read(_RECORD_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts)
        except ssl.SSLError as error:
            raise _broken(error) from error
        raise ProtocolError("the other end has ended its TLS")


def _broken(error: ssl.SSLError) -> ProtocolError:
    return ProtocolError(f"TLS: {error.reason or error}")
