"""Where the two Java databases are: where Debian's libhsqldb-java and libh2-java put them."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(os.environ.get("PXRS_TEST_JARS", "/usr/share/java"))
JARS = {"hsqldb": _FOLDER / "hsqldb.jar", "h2": _FOLDER / "h2.jar"}
