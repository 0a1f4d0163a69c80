"""Formats of other systems that messages come from and go to."""
