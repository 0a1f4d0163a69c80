"""A coordinator's start heals from passing trouble, tells lasting trouble, and keeps no error."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import ray.exceptions

from pxrs_ray.actors.coordinator import buffer_pool
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.coordinator import Coordinator
from pxrs_ray.actors.coordinator.replicas_document import ReplicasDocument
from pxrs_ray.actors.coordinator.startup import Startup
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import (
    DeadlineExceeded,
    DiskFull,
    LockHeld,
    NotFound,
    StoreCorrupted,
    StoreUnavailable,
    UsageError,
)
from pxrs_ray.group.events import Join
from pxrs_ray.model import Member
from pxrs_ray.supervision import start_tries
from pxrs_ray.topology.registry_witness import ShownRegistry, accept_loss
from pxrs_ray.topology.seal import KEY_FILE, KEYS_MAX
from tests.actors.fake_buffers import FakeBuffer, stand_in, until
from tests.settings import log_limits

PASSING: tuple[Callable[[], BaseException], ...] = (
    lambda: DeadlineExceeded("buffer 0 did not answer ping in 30 s"),
    lambda: DiskFull("no room"),
    lambda: LockHeld("another process holds the log"),
    lambda: OSError(errno.EMFILE, "Too many open files"),
    lambda: MemoryError(),
    lambda: ray.exceptions.RayActorError(),
)
LASTING: tuple[Callable[[], BaseException], ...] = (
    lambda: UsageError("queue 'q' has durability memory"),
    lambda: StoreCorrupted("it went back"),
    lambda: StoreUnavailable("gone fishing"),
    lambda: AssertionError("a fault of ours"),
    lambda: SystemExit(3),
    lambda: RecursionError(),
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_tries, "PAUSE_FIRST_MS", 1)
    monkeypatch.setattr(start_tries, "PAUSE_MOST_MS", 5)
    monkeypatch.setattr(buffer_pool, "PING_PAUSE_S", 0.01)


class Attempts:
    """Fails as often as there are errors, then succeeds."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.begun, self.undone = 0, 0
        self.starting = Startup("it", self._begin, self._undo)

    async def _begin(self) -> None:
        self.begun += 1
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)

    async def _undo(self) -> None:
        self.undone += 1


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 30))


@pytest.mark.parametrize("make", PASSING, ids=lambda make: type(make()).__name__)
def test_passing_trouble_heals_by_itself_while_everybody_waits(
    make: Callable[[], BaseException],
) -> None:
    async def scene() -> None:
        it = Attempts(make(), make(), make())
        await asyncio.gather(*(it.starting.wait(20) for _ in range(5)))
        assert (it.begun, it.undone) == (4, 3)
        await it.starting.wait(0)
        assert it.begun == 4

    run(scene())


@pytest.mark.parametrize("make", LASTING, ids=lambda make: type(make()).__name__)
def test_lasting_trouble_is_told_at_once_and_whoever_asks_next_tries_anew(
    make: Callable[[], BaseException],
) -> None:
    async def scene() -> None:
        it = Attempts(make())
        told = await asyncio.gather(
            *(it.starting.wait(20) for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(error, Exception) for error in told) and it.begun == 1
        await it.starting.wait(20)
        assert (it.begun, it.undone) == (2, 1)

    run(scene())


def test_who_waits_too_long_is_told_what_passes_and_it_goes_on() -> None:
    async def scene() -> None:
        it = Attempts(*(DiskFull("no room on buffer 0") for _ in range(200)))
        with pytest.raises(DeadlineExceeded, match="no room on buffer 0"):
            await it.starting.wait(0.05)
        it.errors.clear()
        await it.starting.wait(20)

    run(scene())


def test_one_that_is_being_deleted_is_not_begun_again() -> None:
    async def scene() -> None:
        it = Attempts(NotFound("it is being deleted"))
        for _ in range(3):
            with pytest.raises(NotFound):
                await it.starting.wait(20)
        assert (it.begun, it.undone) == (1, 0)

    run(scene())


# --- the whole coordinator ------------------------------------------------------------------------


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> list[FakeBuffer]:
    return stand_in(monkeypatch)


def made(tmp_path: Path, **options: Any) -> Coordinator:
    config = PxrsConfig(
        name="shop",
        data_dir=tmp_path,
        store=f"sqlite:///{tmp_path / 'registry.db'}",
        queues={"a": {"partitions": 2}, "b": {"partitions": 2}},
        **options,
    )
    found = Coordinator(config, 2)
    found._may_begin = True  # as `deploy` says
    return found


@pytest.mark.parametrize("method", ["ping", "open", "belong"])
@pytest.mark.parametrize("make", PASSING, ids=lambda make: type(make()).__name__)
def test_a_buffer_in_passing_trouble_delays_the_start_and_ends_nothing(
    method: str,
    make: Callable[[], BaseException],
    fakes: list[FakeBuffer],
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        fakes[1].faults[method] = [make(), make()]
        found = made(tmp_path)
        fingerprint, *_ = await found.ping()
        assert fingerprint == found._config.fingerprint()
        await until(lambda: all(fake.opened == {"a", "b"} for fake in fakes))
        await until(lambda: not found._pool.reports())
        await found.shutdown()

    run(scene())


def test_one_queue_that_cannot_be_opened_holds_up_no_other_and_is_tried_again(
    fakes: list[FakeBuffer], tmp_path: Path
) -> None:
    async def scene() -> None:
        fakes[0].refuses["a"] = UsageError("queue 'a' has durability memory")
        found = made(tmp_path)
        await found.ping()
        assert fakes[0].opened == {"b"} and fakes[1].opened == {"a", "b"}
        assert any("queue a is not open on buffer 0" in r.text for r in found._pool.reports())
        # A buffer that starts anew has its queues again, whatever is the matter with the first.
        fakes[0].restart()
        await until(lambda: fakes[0].opened == {"b"})
        fakes[0].refuses.clear()
        await until(lambda: fakes[0].opened == {"a", "b"})
        await until(lambda: not found._pool.reports())
        await until(lambda: found._pool.met() == [0, 1])
        await until(lambda: fakes[0].calls[-1] == "ping")  # the round that opened it is over
        opens = fakes[0].calls.count("open")
        await asyncio.sleep(0.1)
        assert fakes[0].calls.count("open") == opens
        await found.shutdown()

    run(scene())


@pytest.mark.parametrize("make", [*PASSING, *LASTING], ids=lambda make: type(make()).__name__)
def test_nothing_that_a_buffer_raises_ends_the_watch(
    make: Callable[[], BaseException], fakes: list[FakeBuffer], tmp_path: Path
) -> None:
    async def scene() -> None:
        found = made(tmp_path)
        await found.ping()
        error = make()
        # SystemExit is carried by Ray as an error of the call.
        fault = error if isinstance(error, Exception) else RuntimeError(repr(error))
        fakes[0].faults["ping"] = [fault]
        fakes[0].faults["open"] = [fault, fault]
        fakes[0].restart()
        await until(lambda: fakes[0].opened == {"a", "b"} and not found._pool.reports())
        await found.shutdown()

    run(scene())


def test_a_second_life_reads_no_variables_and_has_what_the_first_was_told(
    fakes: list[FakeBuffer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        first = made(tmp_path)
        await first.group("g", "a", {"attempts_max": 3})
        kept = await first.config()
        await first.shutdown()
        for name, text in (
            ("PXRS_NUM_PARTITIONS", "32"),
            ("PXRS_PREFIX", "other"),
            ("PXRS_DRUABILITY", "typo"),
        ):
            monkeypatch.setenv(name, text)
        given = kept.changed(groups={})
        second = Coordinator(given, 2)
        assert await second.config() == kept
        assert await second.group("g", "a", {}) == "g"
        await second.shutdown()

    run(scene())


def test_the_pool_looks_anew_at_a_buffer_where_something_did_not_open() -> None:
    async def scene() -> None:
        pool, fake = BufferPool("shop", 1, ""), FakeBuffer(0)
        pool._handles = {0: fake}
        pool._incarnations = {0: "1"}
        fake.refuses["q"] = DiskFull("no room")
        spec = QueueSpec("q", 1, log_limits())
        with pytest.raises(DiskFull):
            await pool.open_on(0, spec, {}, make=True)
        returned: list[int] = []

        async def reopen(index: int) -> None:
            returned.append(index)
            await pool.open_on(index, spec, {}, make=True)

        pool.watch(reopen)
        await until(lambda: len(returned) > 2)
        fake.refuses.clear()
        await until(lambda: "q" in fake.opened)
        await until(lambda: not pool.reports())
        pool.stop_watching()

    run(scene())


def _lose_registry(folder: Path) -> None:
    for file in folder.glob("registry.db*"):
        file.unlink()


def test_a_group_that_an_accepted_registry_does_not_know_can_be_made_again(
    fakes: list[FakeBuffer], tmp_path: Path
) -> None:
    async def scene() -> None:
        first = made(tmp_path)
        await first.group("g", "a", {})
        await first._groups["g"].host.submit(Join((Member("me", 1),)))
        await first.shutdown()
        _lose_registry(tmp_path)
        with pytest.raises(StoreCorrupted, match="accept-loss"):
            await made(tmp_path).ping()
        accept_loss(first._config.topology_dir, "me", ShownRegistry())
        second = made(tmp_path)
        assert await second.group("g", "a", {}) == "g"
        await second.shutdown()
        third = made(tmp_path)
        assert [group.group for group in (await third.status()).groups] == ["g"]
        await third.shutdown()

    run(scene())


def test_what_nobody_changes_is_known_after_any_number_of_upgrades(
    fakes: list[FakeBuffer], tmp_path: Path
) -> None:
    """Each start brings a key; the disk keeps the last few, and another node has the newest."""

    async def scene() -> None:
        first = made(tmp_path)
        await first.ping()
        name = await first.group("g", "a", {})
        await first._groups[name]._keep_replicas(ReplicasDocument(paused=True).to_text())
        await first.shutdown()
        for _ in range(2 * KEYS_MAX):
            later = made(tmp_path)
            await later.ping()
            assert later._groups[name].distrusted == ""
            await later.shutdown()
        assert len(json.loads((tmp_path / "shop" / KEY_FILE).read_text())) == KEYS_MAX
        (tmp_path / "shop" / KEY_FILE).unlink()  # as Ray starts it on another node
        elsewhere = made(tmp_path)
        elsewhere._seal_key = later._seal_key
        await elsewhere.ping()
        assert elsewhere._groups[name].distrusted == ""
        await elsewhere.shutdown()

    run(scene())
