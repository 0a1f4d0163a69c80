"""A service that says "too many requests, again in n seconds": its key waits, the others go on."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from pxrs_ray import Delivery, RetryAfter

from . import service  # noqa: TID252 - the folder is a package of examples


class Answer:
    """Asks a service that limits each customer, and does as it says."""

    def __init__(self, database: str) -> None:
        self.database = database

    def handle(self, message: Delivery) -> None:
        with closing(sqlite3.connect(self.database, timeout=30)) as connection:
            if message.replayed(connection):
                return
            try:
                answer = service.ask("busy", message.payload.decode())
            except service.TooMany as refused:
                # No failed attempt: it comes again then, in its place among those of its key.
                raise RetryAfter(refused.seconds, "429") from refused
            with message.transaction(connection) as cursor:
                cursor.execute("CREATE TABLE IF NOT EXISTS answers (prompt TEXT, answer TEXT)")
                cursor.execute("INSERT INTO answers VALUES (?, ?)", (message.payload, answer))
