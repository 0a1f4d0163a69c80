"""Replicated logs in a world that fails: see `group`."""
