"""The tests of this folder that the product does not pass yet, each with what is to come.

One list, to be emptied: a test that is not named here must pass.
"""

from __future__ import annotations

NOT_YET: dict[str, str] = {}
