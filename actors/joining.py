"""The way into a Ray cluster, with every way that it can fail told in one line, and in seconds.

`ray start` notes the cluster's address in a file, which stays when the cluster is killed. Ray then
knocks for minutes at an address where nobody is; here it is looked at first.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import AuthenticationError, RayError

from pxrs_ray.errors import UsageError

LISTEN_WAIT_S = 3.0
ANY = ("", "auto")
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
        _check_listening(named, "no Ray cluster runs at")
    address = named if named not in ANY else _address_here()
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except ConnectionError as error:
        if address in ANY:
            raise UsageError(f"no Ray cluster runs on this machine: {START_ONE}") from error
        raise UsageError(
            f"Ray at {address} does not let us in: is that the address of a Ray cluster, and "
            f"RAY_AUTH_TOKEN_PATH its token? ({_first_line(error)})"
        ) from error
    except AuthenticationError as error:
        raise UsageError(
            "Ray refused the token: set RAY_AUTH_TOKEN_PATH to the cluster's "
            f"({_first_line(error)})"
        ) from error
    except (RayError, RuntimeError, ValueError) as error:
        raise UsageError(f"cannot join Ray: {_first_line(error)}") from error


def join_or_start() -> None:
    """As `join`, but where no cluster runs and none is named, this process gets one of its own."""
    if ray.is_initialized():
        return
    if os.environ.get("RAY_ADDRESS", "") in ANY and not _is_live(recorded_address()):
        ray.init("local", log_to_driver=False)
    else:
        join()


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


def _check_listening(address: str, told: str) -> None:
    """Notice in seconds, not in Ray's minutes, that nobody listens at an address."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), LISTEN_WAIT_S).close()
    except OSError as error:
        raise UsageError(f"{told} {address} ({error}): {START_ONE}") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].partition(". ")[0][:200] if lines else type(error).__name__
