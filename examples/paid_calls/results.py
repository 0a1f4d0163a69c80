"""Who sends a prompt waits for its answer, in whatever process: it is found by the message's id."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from pxrs_ray import Delivery, Topology

from . import service  # noqa: TID252 - the folder is a package of examples

TABLE = "CREATE TABLE IF NOT EXISTS answers (id TEXT PRIMARY KEY, answer TEXT)"
FIND = "SELECT answer FROM answers WHERE id = ?"


class Answer:
    """Asks the model once, and replies to whoever waits under the id that the sender gave."""

    def __init__(self, database: str) -> None:
        self.database = database

    def handle(self, message: Delivery) -> None:
        with closing(sqlite3.connect(self.database, timeout=30)) as connection:
            if message.replayed(connection):  # paid for, and perhaps nobody has heard it
                (answer,) = connection.execute(FIND, (message.id,)).fetchone()
            else:
                answer = service.ask("small", message.payload.decode())
                with message.transaction(connection) as cursor:
                    cursor.execute(TABLE)
                    cursor.execute("INSERT INTO answers VALUES (?, ?)", (message.id, answer))
            message.reply(answer)  # the first one counts


def ask(topology: Topology, prompts: dict[str, str]) -> None:
    """Send prompts, each under an id of its own."""
    with topology.producer("prompts") as producer:
        for name, prompt in prompts.items():
            producer.send(key=name, payload=prompt, id=name)


def answer_to(topology: Topology, name: str, timeout_s: float) -> str:
    """The answer to the prompt of that id, as soon as it is there; here, or in another process."""
    with topology.replies("prompts") as replies:
        return replies.wait(name, timeout_s).payload.decode()
