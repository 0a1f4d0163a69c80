"""The names of a message's columns between Spark and the routing tasks."""

from __future__ import annotations

KEY = "key"
PAYLOAD = "payload"
TIMESTAMP = "timestamp"
HEADERS = "headers"
SCOPE = "scope"
