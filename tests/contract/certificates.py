"""A certificate authority for tests, and what it signed: one server and one client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

SUBJECTS = {"server": "/CN=localhost", "client": "/CN=pxrs"}


@dataclass(frozen=True)
class Certificates:
    """The files, in PEM, of an authority and of what it signed."""

    folder: Path

    def __getitem__(self, name: str) -> str:
        """The path of 'ca.pem', 'server.pem', 'server.key', 'client.pem' or 'client.key'."""
        return str(self.folder / name)


def make_certificates(folder: Path) -> Certificates:
    """Make them all in `folder`, valid for a day and for 127.0.0.1."""
    made = Certificates(folder)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-keyout", made["ca.key"], "-out", made["ca.pem"], "-subj", "/CN=pxrs tests")
    _openssl("req", "-x509", *key, *authority, "-days", "1")
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name, subject in SUBJECTS.items():
        files = ("-keyout", made[f"{name}.key"], "-out", made[f"{name}.csr"], "-subj", subject)
        _openssl("req", *key, *files)
        signed = ("-in", made[f"{name}.csr"], "-out", made[f"{name}.pem"], "-days", "1")
        by = ("-CA", made["ca.pem"], "-CAkey", made["ca.key"], "-CAcreateserial")
        _openssl("x509", "-req", *signed, *by, "-extfile", str(extensions))
    return made


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
