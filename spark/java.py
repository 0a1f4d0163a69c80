"""Finds Java and its version, and the settings with which Spark and RayDP run on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from pxrs_ray.errors import DependencyMissing

VERSIONS = (8, 11, 17)
ANSWER_S_MAX = 30

# Spark and RayDP look inside these packages, which Java 17 keeps closed unless told otherwise.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.math", "java.text", "java.util", "java.util.concurrent"),
    *("java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
    "sun.util.calendar",
)
# Java 8 knows no --add-opens, and one option makes it pass over what it does not know. Performance
# data are files in /tmp that stay when Java is killed.
OPTIONS = " ".join(
    ["-XX:+IgnoreUnrecognizedVMOptions", "-XX:-UsePerfData"]
    + [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
)

_REMEDY = (
    "install Java 17 (Debian: apt-get install openjdk-17-jre-headless) on every node, and have "
    "its `java` on the PATH"
)


def check_java(*, on_path: bool) -> int:
    """The major version of the Java that will run; raises DependencyMissing when it will not do.

    `on_path` says that only the PATH counts: RayDP does not look at JAVA_HOME.
    """
    java = _find(on_path)
    version = _major_version(java)
    if version not in VERSIONS:
        raise DependencyMissing(
            f"{java} is Java {version}, and Spark 3.5 runs on Java 8, 11 or 17: {_REMEDY}"
        )
    return version


def _find(on_path: bool) -> str:
    home = None if on_path else os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise DependencyMissing(f"Spark needs Java, and {where}: {_REMEDY}")
    return found


def _major_version(java: str) -> int:
    try:
        asked = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DependencyMissing(f"{java} does not run ({error}): {_REMEDY}") from error
    said = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    if said is None:
        raise DependencyMissing(f"{java} does not say its version: {_REMEDY}")
    return int(said[1])
