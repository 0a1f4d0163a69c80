# ruff: noqa: D102 (the docstrings of RegistryStore are the contract of these methods)
"""`RedisStore`: the registry in a Redis server, written by Lua scripts.

Rules of this file. Each mutator is one script call, so one atomic step; the scripts are in
`scripts`. The driver's own retries are off: they would hide that an answer was lost. A Redis can
lose what it acknowledged (no persistence, a power cut, a failover). So every group counts its
writes and the store remembers the count that Redis answered: less than that is a loss, raised as
`StoreCorrupted` and never ignored. A Redis that may evict any key is refused.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pxrs_ray import model
from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import (
    AlreadyExists,
    ConfigError,
    StoreCorrupted,
    StoreUnavailable,
    UsageError,
)
from pxrs_ray.store import rules, texts
from pxrs_ray.store.deadline import Deadline, Persistence
from pxrs_ray.store.redis import cells as cells
from pxrs_ray.store.redis import scripts
from pxrs_ray.store.registry import RegistryStore, StoreInfo
from pxrs_ray.store.url import StoreUrl

T = TypeVar("T")

SCHEMA_VERSION = 1
CONNECTIONS_MAX = 8
_OUTCOMES = {"a": model.Outcome.APPLIED, "b": model.Outcome.BEHIND, "f": model.Outcome.FENCED}
_PASSING_WORDS = ("MISCONF", "LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS", "BUSY")


class RedisStore(RegistryStore):
    """A registry under one prefix of a Redis database. Made by `open_store`."""

    def __init__(self, url: StoreUrl, *, prefix: str = "/pxrs/", deadline_ms: int = 5_000) -> None:
        if "{" in prefix:
            raise ConfigError(f"prefix {prefix!r}: Redis would read its brace as a hash tag")
        self._url, self._prefix = url, prefix
        self._client = _client(url, deadline_ms)
        self._scripts = {
            name: self._client.register_script(getattr(scripts, name))
            for name in dir(scripts)
            if name.isupper() and not name.startswith("_")
        }
        self._persistence = Persistence(
            where=url.shown,
            deadline_ms=deadline_ms,
            driver_errors=(redis.RedisError,),
            is_passing=_is_passing,
            scrub=url.scrub,
        )
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, int]] = {}
        self._registry_id: str | None = None
        self._info = StoreInfo("redis", url.shown, False, ("not asked yet: call create()",))
        self._closed = False

    def create(self) -> str:
        key = f"{self._prefix}registry"

        def attempt(_: Deadline) -> Sequence[Any]:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.hsetnx(key, "id", secrets.token_hex(16))
                pipe.hsetnx(key, "schema_version", str(SCHEMA_VERSION))
                pipe.hmget(key, ["id", "schema_version"])
                pipe.info()
                found: Sequence[Any] = pipe.execute()
                return found

        _, _, (found, version), server = self._run("create", attempt)
        rules.check_version(self._url.shown, int(version), SCHEMA_VERSION)
        policy = str(server.get("maxmemory_policy", ""))
        if policy.startswith("allkeys"):
            raise ConfigError(
                f"the Redis at {self._url.shown} has maxmemory-policy {policy}: it may drop the "
                "registry at any time; set it to noeviction"
            )
        rules.check_registry_id(self._registry_id, found)
        self._info = _info(self._url.shown, server)
        self._registry_id = str(found)
        return self._registry_id

    def lead(self, group: str, partitions: int, holder: str) -> model.Snapshot:
        rules.check_lead(group, partitions, holder)
        told = rules.led_change(0, holder, 0, wall_ms())
        words = [json.dumps(told.owner), json.dumps(told.cause), told.at_ms]

        def attempt(_: Deadline) -> Any:
            life, seq = self._last_seen(group)
            self._client.sadd(f"{self._prefix}groups", group)
            if life:
                self._check_registry()
            return self._call("LEAD", group, partitions, secrets.token_hex(8), *words, life, seq)

        answer = self._run(f"lead {group!r}", attempt)
        if answer[0] == "count":
            raise UsageError(
                f"group {group!r} has {answer[1]} partitions, asked for {partitions}; "
                "the number of partitions of a group cannot change"
            )
        self._check_kept(group, answer)
        state = cells.pairs(answer[1])
        self._note_seen(group, state["id"], int(state["seq"]))
        return cells.snapshot_from(group, state, cells.pairs(answer[2]))

    def load(self, group: str) -> model.Snapshot | None:
        state, members = self._run(f"load {group!r}", lambda _: self._call("LOAD", group))
        if not state:
            return None
        return cells.snapshot_from(group, cells.pairs(state), cells.pairs(members))

    def groups(self) -> tuple[str, ...]:
        def attempt(_: Deadline) -> list[str]:
            names = sorted(self._client.smembers(f"{self._prefix}groups"))
            with self._client.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.exists(self._keys(name)[0])
                there = pipe.execute()
            return [name for name, found in zip(names, there, strict=True) if found]

        return tuple(self._run("groups", attempt))

    def write(
        self, group: str, generation: model.Generation, records: Sequence[model.Record]
    ) -> list[model.Outcome]:
        rules.check_records(records)
        words = [word for record in records for word in cells.record_words(record)]
        return self._mutate("WRITE", group, generation, len(records), *words)

    def renew(
        self,
        group: str,
        generation: model.Generation,
        members: Sequence[tuple[model.MemberId, model.Incarnation]],
        lease_ms: int,
    ) -> list[model.Outcome]:
        words = [word for member in members for word in member]
        return self._mutate("RENEW", group, generation, len(members), lease_ms, *words)

    def expired(self, group: str) -> tuple[model.PartitionRow, ...]:
        found = self._run(f"expired of {group!r}", lambda _: self._call("EXPIRED", group))
        return tuple(
            texts.partition_row(int(partition), own, cell)
            for partition, own, cell in zip(found[::3], found[1::3], found[2::3], strict=True)
        )

    def changes(
        self, group: str, after_version: int, limit: int = 1_000
    ) -> tuple[model.Change, ...]:
        key = self._keys(group)[2]

        def attempt(_: Deadline) -> list[str]:
            after = f"({after_version}"
            found: list[str] = self._client.zrangebyscore(key, after, "+inf", 0, limit)
            return found

        found = self._run(f"changes of {group!r}", attempt)
        return tuple(map(texts.change_from, found))

    def trim_changes(self, group: str, generation: model.Generation, keep: int) -> None:
        self._mutate("TRIM", group, generation, 0, keep)

    def put_document(
        self, group: str, generation: model.Generation, name: str, text: str
    ) -> model.Outcome:
        rules.check_document(name, text)
        # An answer without a letter a record: what counts is that it was not refused.
        refused = self._mutate("PUT", group, generation, 1, name, text)
        return refused[0] if refused else model.Outcome.APPLIED

    def documents(self, group: str) -> Mapping[str, str]:
        key = self._keys(group)[3]

        def attempt(_: Deadline) -> Mapping[str, str]:
            found: Mapping[str, str] = self._client.hgetall(key)
            return found

        return self._run(f"documents of {group!r}", attempt)

    def restore(
        self,
        snapshot: model.Snapshot,
        changes: Sequence[model.Change],
        documents: Mapping[str, str],
    ) -> None:
        rules.check_restore(snapshot, documents)
        group, tries = snapshot.group, 0
        words = cells.restore_words(snapshot, secrets.token_hex(8), changes, documents)

        def attempt(_: Deadline) -> bool:
            nonlocal tries
            tries += 1
            self._client.sadd(f"{self._prefix}groups", group)
            return bool(self._call("RESTORE", group, *words) == ["done"])

        # After a lost answer it may be our own first try that is there.
        if not self._run(f"restore {group!r}", attempt) and not (
            tries > 1 and self.load(group) == snapshot
        ):
            raise AlreadyExists(f"group {group!r} exists in this store already")

    def remove_group(self, group: str, generation: model.Generation | None = None) -> model.Outcome:
        def attempt(_: Deadline) -> Any:
            answer = self._call("REMOVE", group, "" if generation is None else generation)
            if answer[0] == "gone" and generation is not None:
                self._check_registry()
            if answer[0] in ("done", "gone"):
                self._client.srem(f"{self._prefix}groups", group)
            return answer

        answer = self._run(f"remove {group!r}", attempt)
        self._check_kept(group, answer)
        if answer[0] == "fenced":
            return model.Outcome.FENCED
        with self._lock:
            self._seen.pop(group, None)
        return model.Outcome.APPLIED

    def describe(self) -> StoreInfo:
        return self._info

    def close(self) -> None:
        self._closed = True
        self._client.close()
        self._client.connection_pool.disconnect()

    def _keys(self, group: str) -> list[str]:
        base = f"{self._prefix}{{{quote(group, safe='')}}}:"
        return [base + part for part in ("state", "members", "changes", "documents", "lease:")]

    def _call(self, script: str, group: str, *words: object) -> Any:
        return self._scripts[script](keys=self._keys(group), args=words)

    def _mutate(
        self, script: str, group: str, generation: model.Generation, count: int, *words: object
    ) -> list[model.Outcome]:
        def attempt(_: Deadline) -> Any:
            life, seq = self._last_seen(group)
            answer = self._call(script, group, generation, life, seq, *words)
            if answer[0] == "gone":
                self._check_registry()
            return answer

        if not count and script != "TRIM":
            return []
        answer = self._run(f"{script.lower()} in {group!r}", attempt)
        self._check_kept(group, answer)
        if answer[0] != "done":
            return [model.Outcome.FENCED] * count
        self._note_seen(group, answer[3], int(answer[1]))
        return [_OUTCOMES[letter] for letter in answer[2]]

    def _last_seen(self, group: str) -> tuple[str, int]:
        """The life of the group that this store knows, and the last count of writes that it was
        told."""
        with self._lock:
            return self._seen.get(group, ("", 0))

    def _note_seen(self, group: str, life: str, seq: int) -> None:
        with self._lock:
            known, before = self._seen.get(group, ("", 0))
            self._seen[group] = (life, max(seq, before) if known == life else seq)

    def _check_registry(self) -> None:
        found = self._client.hget(f"{self._prefix}registry", "id")
        rules.check_registry_id(self._registry_id, found)

    def _check_kept(self, group: str, answer: Sequence[Any]) -> None:
        if answer[0] == "lost":
            raise StoreCorrupted(
                f"group {group!r}: the Redis at {self._url.shown} went back to {answer[1]}: it "
                "lost accepted writes (a restart without persistence, or a failover); stop the "
                "topology and check the registry before going on"
            )

    def _run(self, what: str, attempt: Callable[[Deadline], T]) -> T:
        if self._closed:
            raise StoreUnavailable("this store was closed; open a new one")
        return self._persistence.run(what, attempt)


def _info(shown: str, server: Mapping[str, Any]) -> StoreInfo:
    """What the server says of its durability."""
    warnings = []
    if durable := bool(server.get("aof_enabled")):
        warnings.append("appendfsync everysec, if set, may lose a second at a power cut")
    else:
        warnings.append("appendonly is off: a restart loses accepted writes; set it to yes")
    if str(server.get("maxmemory_policy", "")).startswith("volatile"):
        warnings.append("maxmemory-policy volatile-* may end leases early; use noeviction")
    if server.get("connected_slaves"):
        warnings.append("replicas follow asynchronously: a failover may lose accepted writes")
    return StoreInfo("redis", shown, durable, tuple(warnings))


def _client(url: StoreUrl, deadline_ms: int) -> Any:
    """The driver's client. Its own types do not know that it decodes, hence Any."""
    url.check_options(("db",))
    host, port = url.address("localhost", 6379)
    database = url.options.get("db") or url.path.strip("/") or "0"
    if not database.isdecimal():
        raise ConfigError(f"store URL {url.shown}: the path is the number of a database")
    tls: dict[str, Any] = {}
    if url.tls:
        tls = {
            "connection_class": redis.SSLConnection,
            "ssl_ca_certs": url.ca_file,
            "ssl_certfile": url.cert_file,
            "ssl_keyfile": url.key_file,
        }
    # A quarter of the deadline a try: an answer that does not come leaves time for another.
    wait_s = deadline_ms / 4_000
    pool = redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
        max_connections=CONNECTIONS_MAX,
        timeout=deadline_ms / 1_000,
        host=host,
        port=port,
        db=int(database),
        username=url.user,
        password=url.password,
        socket_timeout=wait_s,
        socket_connect_timeout=wait_s,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        protocol=2,
        client_name="pxrs",
        **tls,
    )
    return redis.Redis(connection_pool=pool)


def _is_passing(error: Exception) -> bool:
    """Broken connections, a full memory or disk, a server that starts or fails over."""
    if isinstance(error, redis.AuthenticationError | redis.exceptions.AuthorizationError):
        return False
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return False
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | redis.OutOfMemoryError):
        return True
    return any(word in str(error) for word in _PASSING_WORDS)
