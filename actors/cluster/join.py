"""`ray.init` with fast errors of one line.

`ray start` notes the cluster's address in a file, which remains when the cluster is killed. Ray
retries a dead address for minutes, so this module first checks that something listens there. Ray
also reads this machine's token only where no address is given, and otherwise tries without one for
twenty seconds; this module passes the token wherever there is one, as `ray start` does.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Any

import ray
from ray._private.authentication import authentication_token_setup
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]
from ray.exceptions import AuthenticationError, RayError

from pxrs_ray.actors.cluster.knock import CLIENT_SERVER, GCS, Knocked, knock
from pxrs_ray.errors import UsageError
from pxrs_ray.supervision.restart_rules import first_sentence

LISTEN_WAIT_S = 2.0
TOKEN_REMEDY = (
    "copy ~/.ray/auth_token of its head node to the same place here, or name it with "
    "RAY_AUTH_TOKEN_PATH; `export RAY_AUTH_MODE=token` where it was set to something else"
)
ANY = ("", "auto")
CLIENT = "ray://"
PORT_MAX = 65_535
START_ONE = (
    "start one with `ray start --head`, or name another one with RAY_ADDRESS (`pxrs --address`, "
    "or call ray.init() first)"
)


def join(**options: Any) -> None:
    """Join the cluster of RAY_ADDRESS, or the one that runs here, unless this process has one.

    `options` are for `ray.init`. Raises UsageError when there is no way in.
    """
    if ray.is_initialized():
        return
    named = os.environ.get("RAY_ADDRESS", "")
    if named not in ANY:
        _check_form(named)
        _check_listening(named, "no Ray cluster runs at")
    address = named if named not in ANY else _address_here()
    take_the_token()
    _check_let_in(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except ConnectionError as error:
        if address in ANY:
            raise UsageError(f"no Ray cluster runs on this machine: {START_ONE}") from error
        raise UsageError(
            f"Ray at {address} does not let us in: is that the address of a Ray cluster? "
            f"({first_sentence(error)})"
        ) from error
    except AuthenticationError as error:
        raise _not_let_in(address, error) from error
    except (RayError, RuntimeError, ValueError) as error:
        raise UsageError(f"cannot join Ray: {first_sentence(error)}") from error


def join_or_start() -> None:
    """As `join`, but where no cluster runs and none is named, this process gets one of its own."""
    if ray.is_initialized():
        return
    if os.environ.get("RAY_ADDRESS", "") in ANY and not _is_live(recorded_address()):
        ray.init("local", log_to_driver=False)
    else:
        join()


def take_the_token() -> None:
    """Show the token that lies on this machine, unless RAY_AUTH_MODE says what is wanted."""
    told = logging.getLogger(authentication_token_setup.__name__)
    level = told.level
    told.setLevel(logging.ERROR)  # it would warn, on stderr, that a token is used
    try:
        authentication_token_setup.maybe_enable_token_auth_if_token_available(
            warn_if_disabled=False
        )
    finally:
        told.setLevel(level)


def _check_let_in(address: str) -> None:
    """Notice at once, not in Ray's twenty or forty seconds, that nobody there lets us in."""
    place = _host_and_port(address)
    if place is None:
        return
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        _check_answers(address, place)


def _check_answers(address: str, place: tuple[str, int]) -> None:
    """Raise UsageError unless the service that `address` means answers there."""
    by_client = address.startswith(CLIENT)
    try:
        service = CLIENT_SERVER if by_client else GCS
        heard = knock(place, service, LISTEN_WAIT_S, _token())
    except OSError as error:
        raise UsageError(f"no Ray cluster runs at {address} ({error}): {START_ONE}") from error
    if heard is Knocked.NOTHING:
        raise UsageError(
            f"something listens at {address} and says nothing for {LISTEN_WAIT_S:g} s: is that the "
            "head of a Ray cluster, and does it run?"
        )
    if heard is Knocked.NOT_LET_IN:
        raise _not_let_in(address)
    if heard is Knocked.OTHER_SERVICE:
        meant = (
            f"the head's own port is written without {CLIENT}"
            if by_client
            else f"where it is the port for Ray's clients, write {CLIENT}{address}"
        )
        raise UsageError(f"what answers at {address} is not what was asked for: {meant}")
    if heard is Knocked.NO_RAY:
        raise UsageError(
            f"what answers at {address} is not the head of a Ray cluster: its port is the one "
            "that `ray start --head` tells (6379 where none was given), not the dashboard's; "
            "a proxy answers so for a host that is not there"
        )


def _token() -> dict[str, str]:
    """The header with the token that is here; none where there is none."""
    try:
        found: dict[str, str] = AuthenticationTokenLoader.instance().get_token_for_http_header()
    except (RayError, RuntimeError, OSError):
        return {}
    return found


def _not_let_in(address: str, error: BaseException | None = None) -> UsageError:
    why = f" ({first_sentence(error)})" if error is not None else ""
    return UsageError(
        f"the Ray cluster at {address} does not take the token that is here: {TOKEN_REMEDY}{why}"
    )


def recorded_address() -> str:
    """What `ray start` noted last on this machine; empty when there is no such note."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return Path(folder, "ray", "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def _address_here() -> str:
    """The noted cluster while it lives, else whichever runs. Raises UsageError when the noted one
    is gone and no other one, or more than one, runs."""
    recorded = recorded_address()
    if not recorded or _is_live(recorded):
        return recorded or "auto"
    from ray._private.services import find_gcs_addresses

    found = find_gcs_addresses()  # type: ignore[no-untyped-call]
    if len(found) == 1:
        return str(next(iter(found)))
    _check_listening(recorded, "the Ray cluster that was started here is gone, nobody listens at")
    return recorded


def _is_live(address: str) -> bool:
    try:
        _check_listening(address, "")
    except UsageError:
        return False
    return bool(address)


def _check_form(address: str) -> None:
    """Say what an address looks like, where this one is none of a cluster."""
    if address.startswith(("http://", "https://")):
        raise UsageError(
            f"{address} is the address of a Ray dashboard, which `ray job` takes: give the head's "
            "own with `pxrs --address HOST:6379`, or ray://HOST:10001 from outside of the cluster"
        )
    if _host_and_port(address) is None:
        raise UsageError(
            f"{address[:100]!r} is not the address of a Ray cluster: that is HOST:6379, or "
            "ray://HOST:10001 from outside of the cluster"
        )


def _check_listening(address: str, told: str) -> None:
    """Notice in seconds, not in Ray's minutes, that nobody listens at an address."""
    place = _host_and_port(address)
    if place is None:
        return
    try:
        socket.create_connection(place, LISTEN_WAIT_S).close()
    except OSError as error:
        raise UsageError(f"{told} {address} ({error}): {START_ONE}") from None


def _host_and_port(address: str) -> tuple[str, int] | None:
    """Where to knock; None for an address of another form, like `auto`."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if not colon or not host or "://" in host or not port.isdecimal():
        return None
    return (host.strip("[]"), int(port)) if len(port) <= 5 and int(port) <= PORT_MAX else None
