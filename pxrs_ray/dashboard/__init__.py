"""The live page: `page_state` computes what it shows, `server` serves it, `static` is the page
itself."""

from __future__ import annotations
