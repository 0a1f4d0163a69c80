"""Makes text from elsewhere harmless for a terminal.

Rules of this file. A message, an error text or a name may hold anything, also
sequences that move the cursor, write to the clipboard or turn the reading
direction. Each character that a terminal obeys is replaced by one that it
shows, so that columns stay as wide as they were.
"""

from __future__ import annotations

# C0 and DEL have pictures of their own; C1, and what turns or hides text, have not.
_PICTURES = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
_C1 = range(0x80, 0xA0)
_TURNING = (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0x061C, 0xFEFF)
_SURROGATES = range(0xD800, 0xE000)
_UNSEEN = dict.fromkeys((*_C1, *_TURNING, *_SURROGATES), 0xFFFD)

_ONE_LINE = _PICTURES | _UNSEEN
_LINES = {code: shown for code, shown in _ONE_LINE.items() if code != ord("\n")}


def harmless(text: str) -> str:
    """`text` as a terminal may show it; only line ends are left to it."""
    return text.translate(_LINES)


def one_line(text: str) -> str:
    """The same, in one line."""
    return text.translate(_ONE_LINE)
