"""Logs for programs: one JSON object a line, with the subject of the event as fields.

Rules of this file. Quiet by default: warnings and errors alone. PXRS_LOG_LEVEL=INFO logs every
change of ownership. Inside an actor `start_journal` says once which topology (and group) it belongs
to.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime

from pxrs_ray.model import MemberWrite, Record

LEVEL_VARIABLE = "PXRS_LOG_LEVEL"
ROOT = "pxrs_ray"
FIELDS = "pxrs_fields"

logger = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object; `about` is in each."""

    def __init__(self, about: dict[str, object]) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        """The record in one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"at": at, "level": record.levelname, **self._about}
        told |= getattr(record, FIELDS, {})
        told |= {"event": record.getMessage(), "logger": record.name}
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def start_journal(**about: object) -> None:
    """Let this process's PXRS loggers write JSON lines to stderr; again only changes `about`."""
    root = logging.getLogger(ROOT)
    root.setLevel(os.environ.get(LEVEL_VARIABLE, "WARNING").upper())
    root.propagate = False
    for old in list(root.handlers):
        root.removeHandler(old)
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(about))
    root.addHandler(handler)


def tell_changes(group: str, records: Iterable[Record]) -> None:
    """One line for each change of ownership or membership."""
    if not logger.isEnabledFor(logging.INFO):
        return
    for record in records:
        if record.version == 0:
            continue
        fields: dict[str, object] = {"group": group, "cause": record.cause}
        if isinstance(record, MemberWrite):
            text = f"member {record.kind}"
            fields["member"] = record.member.member
            fields["incarnation"] = record.member.incarnation
        else:
            text = record.kind.value
            fields |= {"partition": record.partition, "epoch": record.epoch}
            fields |= {"member": record.owner, "incarnation": record.incarnation}
            fields["checkpoint"] = record.checkpoint
        fields["version"] = record.version
        logger.info(text, extra={FIELDS: fields})
