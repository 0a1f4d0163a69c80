"""Queues that are not ours: ownership, checkpoints and fencing as a layer over another system.

A queue whose option `source` names one has no logs here. Its messages are read where they are, and
each goes to the virtual partition that its key hashes to; a checkpoint is a position of the source.

    file:///var/log/orders.jsonl?key=account        lines of a file that grows
    redis://host:6379/0?stream=orders&key=account   a Redis stream
    shop.sources:open_orders                        whatever a function of yours returns
"""

from __future__ import annotations

from pxrs_ray.sources.open_source import SourceSpec, open_source
from pxrs_ray.sources.source import Source, SourceRecord

__all__ = ["Source", "SourceRecord", "SourceSpec", "open_source"]
