"""The live page: `picture` says what it shows, `server` serves it, `static` is the page itself."""

from __future__ import annotations
