"""Tools for tests, ours and users': the store contract, a faulty store, and clocks that tests
move."""

from __future__ import annotations
