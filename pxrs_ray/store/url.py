"""Store URLs: what they say, where their secrets come from, and how they look without them.

    memory:
    sqlite:///relative/registry.db      sqlite:////absolute/registry.db
    etcd://host:2379,host2:2379/prefix  postgresql://user@host/database?sslmode=require
    oracle://user@host:1521/service     redis://host:6379/0
    python:module:function?option=value    a store of the user's own

An etcd URL's path stands before the prefix of the keys.

Rules of this file. A password comes from the URL itself, from the file that `password_file=`
names, from the variable that `password_env=` names, or from PXRS_STORE_PASSWORD_FILE or
PXRS_STORE_PASSWORD, in this order; the user likewise from the URL or PXRS_STORE_USER. TLS is
`tls=true` with `ca_file=`, `cert_file=` and `key_file=` for every server (or the scheme with an
s: etcds, rediss). A secret is in no repr and in no `shown` text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from pxrs_ray.errors import ConfigError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.suggest import nearest

SCHEMES = ("memory", "sqlite", "etcd", "etcds", "postgresql", "oracle", "redis", "rediss", "python")
_ALIASES = {"postgres": "postgresql", "etcd3": "etcd", "sqlite3": "sqlite", "mem": "memory"}
PASSWORD_REFERENCES = ("password_env", "password_file")
_COMMON_OPTIONS = ("user", "password", *PASSWORD_REFERENCES)
_TLS_OPTIONS = ("tls", "ca_file", "cert_file", "key_file")
PORT_MAX = 65_535
PORTS = {"etcd": 2_379, "postgresql": 5_432, "oracle": 1_521, "redis": 6_379}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class StoreUrl:
    """A store URL taken apart. `options` are the backend's own, checked by the backend."""

    scheme: str
    hosts: tuple[tuple[str, int | None], ...]
    path: str
    user: str | None
    password: str | None = field(repr=False)
    options: Mapping[str, str] = field(repr=False)
    tls: bool
    ca_file: str | None
    cert_file: str | None
    key_file: str | None

    @property
    def shown(self) -> str:
        """The URL for people: with '***' for a password, without options that may be secret."""
        user = f"{self.user}:***@" if self.password else f"{self.user}@" if self.user else ""
        where = ",".join(host if port is None else f"{host}:{port}" for host, port in self.hosts)
        slashes = "//" if self.hosts or self.scheme == "sqlite" else ""
        return f"{self.scheme}:{slashes}{user}{where}{self.path}"

    def scrub(self, text: str) -> str:
        """`text` with the password replaced wherever it occurs."""
        return text.replace(self.password, "***") if self.password else text

    def address(self, host: str, port: int) -> tuple[str, int]:
        """The first host and port, with these defaults."""
        found = self.hosts[0] if self.hosts else (host, None)
        return found[0] or host, found[1] or port

    def check_options(self, allowed: tuple[str, ...]) -> None:
        """Refuse an option that this backend does not know, naming the nearest one it does."""
        known = (*allowed, *_COMMON_OPTIONS, *_TLS_OPTIONS)
        for name in self.options:
            if name not in allowed:
                raise ConfigError(
                    f"store URL {self.shown}: unknown option {name!r}{_hint(name, known)}"
                )


def parse_store_url(url: str, environment: Mapping[str, str] | None = None) -> StoreUrl:
    """Take `url` apart. Raises ConfigError, which never repeats the URL's secrets."""
    environment = os.environ if environment is None else environment
    scheme, colon, _ = url.partition(":")
    scheme = scheme.strip().lower()
    if not colon or scheme not in SCHEMES:
        named = scheme if colon and "@" not in scheme else "(no scheme)"
        near = _hint(_ALIASES.get(scheme, scheme), SCHEMES)
        raise ConfigError(
            f"unknown store {named!r}{near}; a store URL starts with one of "
            f"{', '.join(f'{known}:' for known in SCHEMES)}"
        )
    # urlsplit knows no authority for a list of hosts with ports, so it only splits the rest.
    try:
        parts = urlsplit("x:" + url.partition(":")[2])
    except ValueError:
        # What it says may repeat a part of the URL, and in that a secret.
        raise ConfigError(f"store URL: {scheme} has an invalid host") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    user = options.pop("user", "") or unquote(user) or environment.get("PXRS_STORE_USER", "")
    tls = _flag(options.pop("tls", ""), scheme) or scheme in ("etcds", "rediss")
    return StoreUrl(
        scheme={"etcds": "etcd", "rediss": "redis"}.get(scheme, scheme),
        hosts=tuple(_host(place, scheme) for place in places.split(",") if place),
        path=unquote(parts.path),
        user=user or None,
        password=_password(unquote(password), options, environment),
        tls=tls,
        ca_file=options.pop("ca_file", None),
        cert_file=options.pop("cert_file", None),
        key_file=options.pop("key_file", None),
        options=options,
    )


def _password(inline: str, options: dict[str, str], environment: Mapping[str, str]) -> str | None:
    given = options.pop("password", "")
    named = {name: options.pop(name, "") for name in PASSWORD_REFERENCES}
    if inline or given:
        return inline or given
    if not any(named.values()):
        if common := environment.get("PXRS_STORE_PASSWORD"):
            return common
        named["password_file"] = environment.get("PXRS_STORE_PASSWORD_FILE", "")
    return password_named(named, environment, "store URL")


def password_named(
    options: Mapping[str, str], environment: Mapping[str, str], where: str
) -> str | None:
    """The password that `password_env` or `password_file` names; None where neither does.

    Raises ConfigError, which begins with `where`.
    """
    if variable := options.get("password_env"):
        if variable not in environment:
            raise ConfigError(f"{where}: the environment has no variable {variable!r}")
        return environment[variable]
    if not (file := options.get("password_file")):
        return None
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{where}: cannot read password_file: {error}") from None
    except ValueError:
        # Its own words hold the bytes that are no text: they may be the password.
        raise ConfigError(f"{where}: password_file holds no text, or is no path") from None


def _host(place: str, scheme: str) -> tuple[str, int | None]:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place.strip("[]"), None
    if not port.isdecimal():
        raise ConfigError(f"store URL: {scheme} has a port that is not a number: {port!r}")
    if not 1 <= int(port[:6]) <= PORT_MAX:
        raise ConfigError(f"store URL: {scheme} has the port {port}, allowed: 1 to {PORT_MAX}")
    return host.strip("[]"), int(port)


def _flag(text: str, scheme: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if not text or text.lower() in _FALSE:
        return False
    raise ConfigError(f"store URL: {scheme} has tls={text!r}, allowed: true or false")


def _hint(name: str, known: tuple[str, ...]) -> str:
    near = nearest(name, known)
    return f", did you mean {near!r}?" if near else ""
