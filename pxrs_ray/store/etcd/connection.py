"""`EtcdConnection`: makes the package etcd3 dependable, and offers the few operations that the
store needs.

Rules of this file. There is one client for each endpoint. The next endpoint is tried when one does
not answer in time, because a frozen member keeps its connections. Every call has a timeout: etcd3's
default waits for ever. A token that etcd no longer knows (idle too long, or a restart) causes a new
login. etcd3's Lock, watch and background threads are not used.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import grpc

from pxrs_ray.errors import ConfigError
from pxrs_ray.store.deadline import Deadline
from pxrs_ray.store.etcd.import_etcd3 import import_etcd3
from pxrs_ray.store.url import StoreUrl

T = TypeVar("T")

_TRY_S_MAX = 2.0
_TRY_S_MIN = 0.2
_CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", -1),
    # A channel of its own: shared ones would outlive `close` while another store is open.
    ("grpc.use_local_subchannel_pool", 1),
]
_PASSING = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
)


class _ChannelClosed(Exception):
    """Raised when a call met a client that another thread had closed; a new one is made."""


class EtcdConnection:
    """Clients to one cluster, used by several threads."""

    def __init__(self, url: StoreUrl, deadline_ms: int) -> None:
        url.check_options(())
        authorities = url.ca_file or ssl.get_default_verify_paths().cafile
        if url.tls and not authorities:
            raise ConfigError(
                f"store URL {url.shown}: this machine has no CA certificates: give ca_file="
            )
        if bool(url.cert_file) != bool(url.key_file):
            raise ConfigError(f"store URL {url.shown}: cert_file= and key_file= come together")
        etcd3 = import_etcd3()
        self.rpc = etcd3.etcdrpc
        self.errors = (grpc.RpcError, etcd3.Etcd3Exception, _ChannelClosed)
        self._make_client = etcd3.client
        self._endpoints = [(host or "localhost", port or 2379) for host, port in url.hosts]
        self._endpoints = self._endpoints or [("localhost", 2379)]
        self._options = {
            "ca_cert": authorities if url.tls else None,
            "cert_cert": url.cert_file,
            "cert_key": url.key_file,
            "user": url.user,
            "password": url.password if url.user else None,
        }
        # Several tries fit into a deadline, so that another endpoint gets its turn.
        self._try_s = min(_TRY_S_MAX, max(_TRY_S_MIN, deadline_ms / 3_000))
        self._lock = threading.Lock()
        self._clients: dict[int, Any] = {}
        self._current = 0

    def call(self, deadline: Deadline, method: Callable[[Any], Any], request: Any) -> Any:
        """Send `request` to the method that `method` picks from a client, at one endpoint."""
        with self._lock:
            place = self._current
        timeout_s = min(self._try_s, max(_TRY_S_MIN, deadline.left_s))
        try:
            client = self._client(place)
            return method(client)(
                request,
                timeout_s,
                credentials=client.call_credentials,
                metadata=client.metadata,
            )
        except self.errors as error:
            if _is_stale_token(error):
                self._forget(place)
            elif self.is_passing(error):
                with self._lock:
                    if self._current == place:
                        self._current = (place + 1) % len(self._endpoints)
            raise
        except ValueError as error:
            # What gRPC says when another thread gave up this client a moment ago.
            if "closed channel" not in str(error):
                raise
            raise _ChannelClosed(str(error)) from None

    def txn(
        self,
        deadline: Deadline,
        compare: Sequence[Any],
        success: Sequence[Any],
        failure: Sequence[Any] = (),
    ) -> tuple[bool, list[Any]]:
        """One transaction: whether the comparisons held, and the answer of each operation."""
        request = self.rpc.TxnRequest(compare=compare, success=success, failure=failure)
        answer = self.call(deadline, lambda client: client.kvstub.Txn, request)
        return bool(answer.succeeded), list(answer.responses)

    def grant(self, deadline: Deadline, ttl_s: int) -> tuple[int, int]:
        """A new lease: its id and the seconds that etcd gave it, which may be more."""
        request = self.rpc.LeaseGrantRequest(TTL=ttl_s)
        answer = self.call(deadline, lambda client: client.leasestub.LeaseGrant, request)
        return int(answer.ID), int(answer.TTL)

    def revoke(self, deadline: Deadline, lease: int) -> None:
        """End a lease; one that is over is success."""
        request = self.rpc.LeaseRevokeRequest(ID=lease)
        try:
            self.call(deadline, lambda client: client.leasestub.LeaseRevoke, request)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise

    def keep_alive(self, deadline: Deadline, leases: Sequence[int]) -> list[int]:
        """Renew leases in one exchange: of each the seconds it has now, 0 when it is over."""
        requests = iter([self.rpc.LeaseKeepAliveRequest(ID=lease) for lease in leases])
        stream = self.call(deadline, lambda client: client.leasestub.LeaseKeepAlive, requests)
        ttls = {int(answer.ID): int(answer.TTL) for answer in stream}
        return [ttls.get(lease, 0) for lease in leases]

    def is_passing(self, error: Exception) -> bool:
        """Whether another try may succeed."""
        if isinstance(error, _ChannelClosed):
            return True
        if not isinstance(error, grpc.RpcError):
            return type(error).__name__ in ("ConnectionFailedError", "ConnectionTimeoutError")
        return error.code() in _PASSING or _is_stale_token(error)

    def close(self) -> None:
        """Close every channel."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _client(self, place: int) -> Any:
        with self._lock:
            client = self._clients.get(place)
            if client is None:
                host, port = self._endpoints[place]
                client = self._make_client(
                    host=host,
                    port=port,
                    timeout=self._try_s,
                    grpc_options=_CHANNEL_OPTIONS,
                    **self._options,
                )
                if not client.uses_secure_channel:
                    # gRPC refuses call credentials on plaintext; the token is in the metadata too.
                    client.call_credentials = None
                self._clients[place] = client
            return client

    def _forget(self, place: int) -> None:
        with self._lock:
            client = self._clients.pop(place, None)
        if client is not None:
            client.close()

    # Operations and comparisons, in few words.

    def put(self, key: str, value: str, lease: int = 0) -> Any:
        """Store a value."""
        request = self.rpc.PutRequest(key=key.encode(), value=value.encode(), lease=lease)
        return self.rpc.RequestOp(request_put=request)

    def get(self, key: str, end: str | None = None, limit: int = 0, **options: Any) -> Any:
        """Read a key, or the keys from `key` up to before `end`."""
        request = self.rpc.RangeRequest(
            key=key.encode(), range_end=end.encode() if end else b"", limit=limit, **options
        )
        return self.rpc.RequestOp(request_range=request)

    def under(self, prefix: str, **options: Any) -> Any:
        """Read every key that begins with `prefix`."""
        return self.get(prefix, end_of(prefix), **options)

    def delete(self, key: str, end: str | None = None) -> Any:
        """Remove a key, or the keys from `key` up to before `end`."""
        request = self.rpc.DeleteRangeRequest(
            key=key.encode(), range_end=end.encode() if end else b""
        )
        return self.rpc.RequestOp(request_delete_range=request)

    def nested(self, compare: Iterable[Any], success: Iterable[Any]) -> Any:
        """A transaction in a transaction, with an answer of its own."""
        return self.rpc.RequestOp(request_txn=self.rpc.TxnRequest(compare=compare, success=success))

    def is_value(self, key: str, value: str) -> Any:
        """The stored value is this one; never true of an absent key."""
        return self.rpc.Compare(
            result=self.rpc.Compare.EQUAL,
            target=self.rpc.Compare.VALUE,
            key=key.encode(),
            value=value.encode(),
        )

    def is_below(self, key: str, value: str) -> Any:
        """The stored value sorts before this one; never true of an absent key."""
        return self.rpc.Compare(
            result=self.rpc.Compare.LESS,
            target=self.rpc.Compare.VALUE,
            key=key.encode(),
            value=value.encode(),
        )

    def is_unchanged(self, key: str, mod_revision: int) -> Any:
        """The key was last changed at this revision; 0 means that it is absent."""
        return self.rpc.Compare(
            result=self.rpc.Compare.EQUAL,
            target=self.rpc.Compare.MOD,
            key=key.encode(),
            mod_revision=mod_revision,
        )


def end_of(prefix: str) -> str:
    """The first key behind all that begin with `prefix`, which must end in ASCII."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _is_stale_token(error: Exception) -> bool:
    if not isinstance(error, grpc.RpcError):
        return False
    words = error.details() or ""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED and "token" in words
