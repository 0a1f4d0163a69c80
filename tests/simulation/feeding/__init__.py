"""Simulated feeds: Spark's drivers and tasks around the feed, the buffer and the log that ship."""
