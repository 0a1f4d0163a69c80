"""What the columns of a message are called on their way from Spark to the routing tasks."""

from __future__ import annotations

KEY = "key"
PAYLOAD = "payload"
TIMESTAMP = "timestamp"
HEADERS = "headers"
SCOPE = "scope"
