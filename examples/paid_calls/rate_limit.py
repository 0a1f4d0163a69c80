"""A paid model: so many calls and tokens a minute, and no answer is paid for twice."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from pxrs_ray import Delivery

from . import service  # noqa: TID252 - the folder is a package of examples


def tokens(message: Delivery) -> float:
    """What the call will cost, before it is made: four characters are about a token."""
    return len(message.payload) / 4 + 1


class Answer:
    """Asks the model, and keeps the answer with the message's progress."""

    def __init__(self, database: str, model: str) -> None:
        self.database, self.model = database, model

    def handle(self, message: Delivery) -> None:
        with closing(sqlite3.connect(self.database, timeout=30)) as connection:
            if message.replayed(connection):  # before paying
                return
            answer = service.ask(self.model, message.payload.decode())
            with message.transaction(connection) as cursor:
                cursor.execute("CREATE TABLE IF NOT EXISTS answers (prompt TEXT, answer TEXT)")
                cursor.execute("INSERT INTO answers VALUES (?, ?)", (message.payload, answer))
