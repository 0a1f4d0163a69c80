"""`stats_of`: a buffer's counters and sizes, as `BufferStats`. Called by the buffer."""

from __future__ import annotations

import os
from collections import Counter

from pxrs_ray.actors.buffer.log_writer import LogWriter
from pxrs_ray.actors.cluster.process_memory import resident_bytes
from pxrs_ray.data.protocol import BufferStats
from pxrs_ray.log.log_manager import LogManager


def stats_of(
    counts: Counter[str], manager: LogManager, writer: LogWriter, disk_free_bytes: int
) -> BufferStats:
    """What it did, by its `counts`, and what its logs hold."""
    times, logs = os.times(), manager.all_logs()
    return BufferStats(
        appends=counts["appends"],
        frames=counts["frames"],
        messages=counts["messages"],
        bytes_in=counts["bytes_in"],
        repeats=counts["repeats"],
        refused=manager.refused_appends.count,
        fetches=counts["fetches"],
        fetches_waiting=counts["fetches_waiting"],
        bytes_out=counts["bytes_out"],
        cold_reads=counts["cold_reads"],
        fenced=counts["fenced"],
        appends_waiting=counts["appends_waiting"],
        bytes_hot=sum(log.bytes_hot for log in logs),
        bytes_kept=sum(log.size_bytes for log in logs),
        syncs=writer.syncs,
        sync_ms_max=writer.sync_ms_max,
        cpu_seconds=times.user + times.system,
        rss_bytes=resident_bytes(),
        disk_free_bytes=disk_free_bytes,
        links=counts["links"],
        link_calls=counts["link_calls"],
        strangers_refused=counts["strangers_refused"],
        last_refusal=manager.refused_appends.last,
    )
