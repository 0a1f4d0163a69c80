"""What the base install leaves out: the extras, and the one line that says how to get them.

Rules of this file. The base install (`pip install pxrs-ray`) runs queues on SQLite and in memory.
A package that only some need stands in an extra, is imported inside a `with extra(...)` at the
door through which it is reached, and nowhere at the head of a module that others import.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pxrs_ray.errors import DependencyMissing

# Extra: what it is for. pyproject.toml says what each one installs.
EXTRAS: dict[str, str] = {
    "default": "Ray with its dashboard, metrics and jobs, as in ray[default], and the live page",
    "etcd": "registries in etcd",
    "oracle": "registries and results in Oracle",
    "postgres": "registries and results in PostgreSQL",
    "redis": "registries in Redis, and queues over Redis streams",
    "spark": "feeds from Spark, and queues back into DataFrames",
}


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Import in this block what the extra `name` installs, on behalf of `what`.

    Raises DependencyMissing, in one line that names the extra, when something is not installed or
    does not load. An ImportError of our own modules is a defect, and passes unchanged.
    """
    assert name in EXTRAS, name
    try:
        yield
    except DependencyMissing:
        raise
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package == "pxrs_ray":
            raise
        if isinstance(error, ModuleNotFoundError) and package:
            why = f"needs the package {package}, which is not installed"
        else:
            first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
            why = f"cannot load {package or 'a package'}: {first_line}"
        raise DependencyMissing(f'{what} {why}: pip install "pxrs-ray[{name}]"') from error
