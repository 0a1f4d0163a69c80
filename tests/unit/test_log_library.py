"""The logs that a buffer keeps from one life to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.data.log_limits import Durability, LossPolicy
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import ConfigError, PxrsError, RetryAfter
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.supervision.passing_trouble import passes
from tests.logs import NOW_MS, put
from tests.settings import log_limits

LIVES = 3


def test_limits_made_of_words_are_what_code_compares() -> None:
    words = log_limits(durability="always", lost_log_policy="continue")  # type: ignore[arg-type]
    assert words.durability is Durability.ALWAYS and words.lost_log_policy is LossPolicy.CONTINUE
    with pytest.raises(ConfigError, match="must be one of memory, interval, always, not 'never'"):
        log_limits(durability="never")  # type: ignore[arg-type]


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("lost_log_policy", list(LossPolicy))
def test_limits_outlive_every_restart(
    tmp_path: Path, durability: Durability, lost_log_policy: LossPolicy
) -> None:
    spec = QueueSpec("q", 2, log_limits(durability=durability, lost_log_policy=lost_log_policy))
    for life in range(LIVES):
        library = LogManager(tmp_path, 0, 1, NOW_MS)
        if life:
            assert library.log("q", 1).limits == spec.limits, "before anybody opens it"
        library.open(spec, {}, NOW_MS, make=True)
        log = library.log("q", 1)
        assert log.limits.durability is durability and log.limits.lost_log_policy is lost_log_policy
        put(log, 0, epoch=life)
        assert (log.visible_end < log.end_offset) is (durability is Durability.ALWAYS)
        library.close()
        on_disk = any((tmp_path / "q" / "p00001").glob("*.seg"))
        assert on_disk is (durability is not Durability.MEMORY)


def test_a_list_of_queues_that_cannot_be_read_is_put_aside(tmp_path: Path) -> None:
    spec = QueueSpec("q", 1, log_limits())
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec, {}, NOW_MS, make=True)
    put(library.log("q", 0), 0)
    library.close()
    (library.folder / "queues.json").write_bytes(b"{")
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    assert library.queues == ()
    assert (library.folder / "queues.json.damaged").read_bytes() == b"{"
    library.open(spec, {0: 1}, NOW_MS, make=True)
    assert library.log("q", 0).end_offset == 1
    library.close()


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (OSError(28, "full"), True),
        (OSError(24, "descriptors"), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (MemoryError(), True),
        (FileNotFoundError(2, "none"), False),
        (OSError(22, "invalid"), False),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("a mistake"), False),
        (ValueError(), False),
    ],
)
def test_trouble_of_the_system_is_told_apart(error: Exception, passing: bool) -> None:
    assert passes(error) is passing


def test_of_our_own_errors_those_pass_that_say_so() -> None:
    waiting: list[type[PxrsError]] = [PxrsError]
    passing = set()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if passes(kind(1.0) if issubclass(kind, RetryAfter) else kind("x")):
            passing.add(kind.__name__)
    assert passing >= {"BufferAway", "DiskFull", "LockHeld", "LogAway", "PartitionFull"}
    assert not passing & {"Fenced", "LogCorrupted", "LogLost", "AlreadyExists", "UsageError"}
