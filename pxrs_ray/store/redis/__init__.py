"""The registry in Redis: each step is one script in the server."""
