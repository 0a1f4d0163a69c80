"""Scenarios as text: commands, and below each what came of it. See `__main__` to rewrite them."""
