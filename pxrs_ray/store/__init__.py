"""Registry stores: where ownership, checkpoints and epochs are kept. The contract is in `registry`.

Rules of this file. `open_store` is the only entry: a backend's module, and with it its driver, is
imported only when its URL is opened.
"""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from pxrs_ray.errors import ConfigError, DependencyMissing
from pxrs_ray.extras import extra
from pxrs_ray.store.registry import RegistryStore, StoreInfo
from pxrs_ray.store.url import StoreUrl, parse_store_url

__all__ = ["RegistryStore", "StoreInfo", "check_url", "open_store", "parse_store_url"]

DEADLINE_MS_MIN = 100

# Scheme: module and class.
_SQL_BACKENDS = {
    "sqlite": ("pxrs_ray.store.sql.sqlite", "SqliteDatabase"),
    "postgresql": ("pxrs_ray.store.sql.postgres", "PostgresDatabase"),
    "oracle": ("pxrs_ray.store.sql.oracle", "OracleDatabase"),
}
_KEY_BACKENDS = {
    "redis": ("pxrs_ray.store.redis.redis_store", "RedisStore"),
    "etcd": ("pxrs_ray.store.etcd.etcd_store", "EtcdStore"),
}
# Scheme: the extra that its driver comes with.
_EXTRAS = {"postgresql": "postgres", "oracle": "oracle", "redis": "redis", "etcd": "etcd"}
_SECRET_PLACES = re.compile(r"(?:password_env|password_file|ca_file|cert_file|key_file)=[^&]*&?")


def open_store(
    url: str,
    *,
    prefix: str = "/pxrs/",
    deadline_ms: int = 5_000,
    data_folder: str | Path | None = None,
) -> RegistryStore:
    """Open the registry store at `url` (see `pxrs_ray.store.url` for what URLs say).

    `prefix` keeps several users of one server apart. `deadline_ms` bounds every call: after it
    the call raises StoreUnavailable. `data_folder` is where 'sqlite:' without a path puts its
    file. Nothing is connected to yet; call `create()` first.

    Raises ConfigError for a URL that makes no sense, DependencyMissing for an absent driver.
    """
    if deadline_ms < DEADLINE_MS_MIN:
        raise ConfigError(f"deadline_ms is {deadline_ms}, allowed: at least {DEADLINE_MS_MIN}")
    if url.rstrip("/") in ("sqlite", "sqlite:") and data_folder is not None:
        url = f"sqlite:///{Path(data_folder).absolute() / 'registry.db'}"
    parsed = parse_store_url(url)
    if parsed.scheme == "python":
        return _own_store(parsed, prefix, deadline_ms)
    if parsed.scheme == "memory":
        from pxrs_ray.store.memory import MemoryStore

        parsed.check_options(())
        return MemoryStore()
    extra_name = _EXTRAS.get(parsed.scheme)
    with extra(extra_name, f"the store {parsed.shown}") if extra_name else nullcontext():
        return _made(parsed, prefix, deadline_ms)


def check_url(url: str) -> None:
    """Raise ConfigError for a URL that makes no sense wherever it is opened.

    Nothing of the machine counts: no driver, password, folder or server has to be here.
    """
    plain = _SECRET_PLACES.sub("", url)
    if (parsed := parse_store_url(plain)).scheme in _EXTRAS:
        with suppress(DependencyMissing):
            open_store(plain).close()
    elif parsed.scheme == "memory":
        parsed.check_options(())


def _own_store(url: StoreUrl, prefix: str, deadline_ms: int) -> RegistryStore:
    """What the function that the URL names returns for its options."""
    module, _, name = url.path.partition(":")
    try:
        made = getattr(import_module(module), name)(
            prefix=prefix, deadline_ms=deadline_ms, **url.options
        )
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"store {url.shown}: python:module:function?option=value names a function that takes "
            f"prefix, deadline_ms and the options, and can be imported where the coordinator runs: "
            f"{error}"
        ) from error
    if not isinstance(made, RegistryStore):
        raise ConfigError(f"store {url.shown} returned {made!r}, which is no RegistryStore")
    return made


def _made(url: StoreUrl, prefix: str, deadline_ms: int) -> RegistryStore:
    """The store of one of our backends. Raises ImportError when its driver is not here."""
    if url.scheme in _SQL_BACKENDS:
        from pxrs_ray.store.sql.sql_store import SqlStore

        return SqlStore(_backend(*_SQL_BACKENDS[url.scheme])(url, deadline_ms), prefix=prefix)
    found = _backend(*_KEY_BACKENDS[url.scheme])(url, prefix=prefix, deadline_ms=deadline_ms)
    assert isinstance(found, RegistryStore)
    return found


def _backend(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
