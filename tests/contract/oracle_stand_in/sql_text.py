"""A SQL statement taken apart, as far as the rules of `oracle_rules.py` need it.

Rules of this file: literals become 'x' (the empty one stays empty) and comments a space, so that
no rule trips over a word inside them. Tokens are upper case; each has the depth of parentheses
that it stands in, its own not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

RESERVED = frozenset(
    """ACCESS ADD ALL ALTER AND ANY AS ASC AUDIT BETWEEN BY CHAR CHECK CLUSTER COLUMN COMMENT
    COMPRESS CONNECT CREATE CURRENT DATE DECIMAL DEFAULT DELETE DESC DISTINCT DROP ELSE EXCLUSIVE
    EXISTS FILE FLOAT FOR FROM GRANT GROUP HAVING IDENTIFIED IMMEDIATE IN INCREMENT INDEX INITIAL
    INSERT INTEGER INTERSECT INTO IS LEVEL LIKE LOCK LONG MAXEXTENTS MINUS MLSLABEL MODE MODIFY
    NOAUDIT NOCOMPRESS NOT NOWAIT NULL NUMBER OF OFFLINE ON ONLINE OPTION OR ORDER PCTFREE PRIOR
    PUBLIC RAW RENAME RESOURCE REVOKE ROW ROWID ROWNUM ROWS SELECT SESSION SET SHARE SIZE SMALLINT
    START SUCCESSFUL SYNONYM SYSDATE TABLE THEN TO TRIGGER UID UNION UNIQUE UPDATE USER VALIDATE
    VALUES VARCHAR VARCHAR2 VIEW WHENEVER WHERE WITH""".split()  # noqa: SIM905
)
_MASKED = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(r"'x?'|:?[A-Za-z_][\w$#]*|\d+|\S")


@dataclass(frozen=True)
class Statement:
    """One statement: as it is, with literals and comments masked, and in upper-case tokens."""

    text: str
    masked: str
    tokens: tuple[str, ...]
    depths: tuple[int, ...]

    @classmethod
    def of(cls, sql: str) -> Statement:
        """Take a statement apart."""
        masked = _MASKED.sub(_mask, sql)
        tokens = tuple(token.upper() for token in _TOKEN.findall(masked))
        depths = []
        depth = 0
        for token in tokens:
            depth -= token == ")"
            depths.append(depth)
            depth += token == "("
        return cls(sql, masked, tokens, tuple(depths))

    def closing(self, opening: int) -> int:
        """The index of the parenthesis that closes the one at `opening`, or the last index."""
        for index in range(opening + 1, len(self.tokens)):
            if self.tokens[index] == ")" and self.depths[index] == self.depths[opening]:
                return index
        return len(self.tokens) - 1

    def items(self, opening: int) -> Iterator[list[str]]:
        """The comma-separated items of the parenthesis at `opening`, as lists of tokens."""
        item: list[str] = []
        for index in range(opening + 1, self.closing(opening)):
            if self.tokens[index] == "," and self.depths[index] == self.depths[opening] + 1:
                yield item
                item = []
            else:
                item.append(self.tokens[index])
        yield item

    def token_after(self, index: int) -> str:
        """The token that follows, or '' at the end."""
        return self.tokens[index + 1] if index + 1 < len(self.tokens) else ""


def _mask(hit: re.Match[str]) -> str:
    found = hit.group(0)
    if not found.startswith("'"):
        return " "
    return "''" if found == "''" else "'x'"
