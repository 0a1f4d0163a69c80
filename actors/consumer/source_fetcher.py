"""`SourceFetcher`: reads an external queue for one member, as `Fetcher` reads our own logs.

Rules of this file. What is read next, and who gets what came, a `SourcePlan` says. Here the source
is opened, read and closed: blocking calls are made on a thread of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.actors.consumer.member_callbacks import MemberCallbacks
from pxrs_ray.consumer.member_effects import MemberChannel
from pxrs_ray.consumer.source_plan import RECORDS_MAX, WAIT_MS, SourcePlan, SourceRead
from pxrs_ray.sources.open_source import SourceSpec, open_source
from pxrs_ray.sources.soundness import sound
from pxrs_ray.sources.source import Source, SourceRecord
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import off_loop

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.group_member import GroupMember

logger = logging.getLogger(__name__)


class SourceFetcher:
    """The one fetch loop of a `GroupMember` whose queue is external."""

    def __init__(self, runtime: GroupMember, hooks: MemberCallbacks, spec: SourceSpec) -> None:
        self.problem = ""
        self._runtime, self._hooks, self._spec = runtime, hooks, spec
        self._plan = SourcePlan(spec.spread)

    def forget(self, index: int) -> None:
        """There is no buffer here."""

    async def loop(self, index: int) -> None:
        """Read for as long as the member lives; there is one loop."""
        source: Source | None = None
        lease, woken = self._runtime.lease, self._runtime.wake_of(MemberChannel.FETCH + index)
        thread = ThreadPoolExecutor(1, "pxrs-source")
        run = partial(off_loop, threads=thread)
        try:
            while not self._runtime.ended.is_set():
                woken.clear()
                read = self._next(lease.is_over())
                if read is None:
                    await woken.wait()
                    continue
                try:
                    if source is None:
                        source = await run(open_source, self._spec.address)
                    records = await run(source.read, read.lowest, RECORDS_MAX, WAIT_MS)
                    records = [sound(record) for record in records]
                except Exception as error:  # noqa: BLE001 - a source is anybody's code
                    self.problem = f"source: {told(error)}"
                    logger.warning("source of %s: %s", self._runtime.name, told(error))
                    if source is not None:
                        thread.submit(source.close)
                        source = None
                    await asyncio.sleep(self._plan.failed())
                    continue
                self.problem = ""
                self._take_in(read, records, lease.is_over())
                self._runtime.carry_out()
        finally:
            if source is not None:
                thread.submit(source.close)
            thread.shutdown(wait=False)

    def _next(self, is_over: bool) -> SourceRead | None:
        bytes_max = self._runtime.spec.config.pull_bytes_max
        return self._plan.next(self._runtime.session, bytes_max, is_over=is_over)

    def _take_in(self, read: SourceRead, records: Sequence[SourceRecord], is_over: bool) -> None:
        """Hand on what came."""
        for part in self._plan.came(read, records, self._runtime.session, is_over=is_over):
            if part.batch is None:
                self._hooks.skipped(part.partition, part.epoch, part.to)
            else:
                self._hooks.received(part.partition, part.epoch, part.batch, part.size_bytes)
