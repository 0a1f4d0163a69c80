"""Formats of other systems that messages are imported from and exported to."""
