"""`Seal`: distinguishes what this topology wrote into its registry from what others put there.

Rules of this file. Write access to an open Redis or etcd must not allow running code in the
cluster: what is unpickled or imported because a document of the registry says so carries a seal, an
HMAC over the document's place and text. The key is never in the registry: Ray keeps it with the
coordinator, and the node's disk keeps the last few, for the topology's next start there. Each start
brings a key of its own, and seals with it what it finds sealed with an older one. No key is
forgotten before that: a document that nobody changes would lose its seal by age.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.errors import DiskFull
from pxrs_ray.files import Files

KEY_BYTES = 32
KEYS_MAX = 8
# Of starts that fail, one after the other, before they have sealed anew.
KEYS_BOUND = 1_024
KEY_FILE = "seal-keys.json"
_MARK = "sealed:1:"

KEYS_CODEC = json_codec("seal keys", tuple[str, ...])


def new_key() -> bytes:
    """A key that nobody can guess."""
    return secrets.token_bytes(KEY_BYTES)


class Seal:
    """Seals with the first of `keys`, and knows the seals of all of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)

    def sealed(self, place: str, text: str) -> str:
        """`text` with the seal for `place` before it."""
        return f"{_MARK}{_seal_of(self._keys[0], place, text)}:{text}"

    def opened(self, place: str, text: str) -> tuple[str, bool]:
        """The text without its seal, and whether the seal is ours, for this place."""
        if not text.startswith(_MARK):
            return text, False
        seal, _, plain = text.removeprefix(_MARK).partition(":")
        wanted = (_seal_of(key, place, plain) for key in self._keys)
        said = seal.encode(errors="surrogatepass")
        return plain, any(hmac.compare_digest(said, each.encode()) for each in wanted)

    def renewed(self, place: str, text: str) -> str | None:
        """What a former key of ours has sealed, sealed with the present one.

        None where there is nothing to renew: the seal is not ours, or is the present one.
        """
        plain, ours = self.opened(place, text)
        renewed = self.sealed(place, plain) if ours else text
        return None if renewed == text else renewed


def _seal_of(key: bytes, place: str, text: str) -> str:
    said = b"\x00".join((place.encode(errors="surrogatepass"), text.encode(errors="surrogatepass")))
    return hmac.new(key, said, "sha256").hexdigest()


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be read ({error}): consumers of a former start are not known"


def seal_of(
    folder: Path, key: bytes, files: Files | None = None, *, strict: bool = False
) -> tuple[Seal, str]:
    """The seal of a topology whose data is in `folder`, and what is wrong with its file, or ''.

    `key` is the one that is used from now on; those that the file has stay known. A file that
    cannot be read now stays as it is, for it may be read by the next start; with `strict` that
    is an OSError.
    """
    files = files or Files()
    path, problem = folder / KEY_FILE, ""
    known: tuple[str, ...] = ()
    try:
        known = KEYS_CODEC.decode(files.read_file(path))
        known = tuple(each for each in known if len(bytes.fromhex(each)) == KEY_BYTES)
    except FileNotFoundError:
        pass
    except OSError as error:
        if strict:
            raise
        return Seal([key]), _unreadable(path, error)
    except ValueError as error:
        problem = _unreadable(path, error)
    keys = (key.hex(), *(each for each in known if each != key.hex()))[:KEYS_BOUND]
    if keys != known:
        try:
            files.replace(path, KEYS_CODEC.encode(keys), sync=True)
        except (OSError, DiskFull) as error:
            problem = problem or f"{path} cannot be written ({error})"
    return Seal([bytes.fromhex(each) for each in keys]), problem


def forget_old_keys(folder: Path, files: Files | None = None) -> None:
    """Keep the last few keys, once all that they sealed is sealed anew. Raises OSError, DiskFull.

    A few stay for a registry that is restored from a backup.
    """
    files = files or Files()
    path = folder / KEY_FILE
    try:
        known = KEYS_CODEC.decode(files.read_file(path))
    except (FileNotFoundError, ValueError):
        return
    if len(known) > KEYS_MAX:
        files.replace(path, KEYS_CODEC.encode(known[:KEYS_MAX]), sync=True)
