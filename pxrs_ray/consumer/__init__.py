"""A consumer without input or output: its session with the coordinator, and what a handler
receives."""
