"""What a real Oracle Database (19c) rejects and the two engines would let pass.

Rules of this file. Each `Rule` has the number of the error that the database gives, what is wrong
in one sentence, and a bad example, which a test shows to be caught. The stand-in applies every
rule to every statement that it is sent, so a store whose suite is green there has none of these
faults in any text that it ever sends. Error number 0 is for what the database takes but never
does what its author meant. Literals and comments are masked before a rule looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tests.contract.oracle_stand_in.sql_text import RESERVED, Statement

_COLUMN_LIST_ENDERS = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK"})
_TABLE_WORDS = frozenset({"FROM", "JOIN", "USING"})
_SET_WORDS = frozenset({"UNION", "MINUS", "INTERSECT"})
IDENTIFIER_BYTES_MAX = 30
VARCHAR_SIZE_MAX = 4_000
IN_LIST_MAX = 1_000


@dataclass(frozen=True)
class Rule:
    """One fault that the database would find: its error, its meaning, an example, its detector."""

    code: int
    meaning: str
    bad: str
    found_in: Callable[[Statement], bool]


@lru_cache(maxsize=1_000)
def violations(sql: str) -> tuple[Rule, ...]:
    """Every rule that `sql` breaks."""
    statement = Statement.of(sql)
    return tuple(rule for rule in RULES if rule.found_in(statement))


def _pattern(code: int, meaning: str, bad: str, expression: str) -> Rule:
    wanted = re.compile(expression, re.IGNORECASE | re.DOTALL)
    return Rule(code, meaning, bad, lambda statement: wanted.search(statement.masked) is not None)


def _alias_after_as(statement: Statement) -> bool:
    for index, token in enumerate(statement.tokens):
        after = index
        if token in ("UPDATE", "INTO") or token in _TABLE_WORDS:
            after = index + 1
            if after < len(statement.tokens) and statement.tokens[after] == "(":
                after = statement.closing(after)
            elif re.fullmatch(r"[A-Z]\w*", statement.token_after(index)) is None:
                continue
            if statement.token_after(after) == "AS":
                return True
    return False


def _select_without_from(statement: Statement) -> bool:
    for index, token in enumerate(statement.tokens):
        if token != "SELECT":
            continue
        depth = statement.depths[index]
        for later in range(index + 1, len(statement.tokens)):
            if statement.depths[later] < depth:
                return True
            if statement.depths[later] == depth:
                if statement.tokens[later] == "FROM":
                    break
                if statement.tokens[later] in _SET_WORDS:
                    return True
        else:
            return True
    return False


def _reserved_bind(statement: Statement) -> bool:
    return any(token[1:] in RESERVED for token in statement.tokens if token[0] == ":")


def _reserved_name(statement: Statement) -> bool:
    tokens = statement.tokens
    if tokens[:2] == ("CREATE", "TABLE") and "(" in tokens:
        for item in statement.items(tokens.index("(")):
            if item and item[0] in RESERVED - _COLUMN_LIST_ENDERS:
                return True
    for index, token in enumerate(tokens):
        following = statement.token_after(index)
        if token == "." and following in RESERVED - {"ROWID"}:
            return True
        if token == "SET" and following in RESERVED and tokens[0] in ("UPDATE", "MERGE"):
            return True
        alias = token == "AS" and following in RESERVED - {"SELECT", "WITH", "OF"}
        if alias and not _in_cast(statement, index):
            return True
    return False


def _in_cast(statement: Statement, index: int) -> bool:
    depth = statement.depths[index]
    for earlier in range(index, 0, -1):
        if statement.tokens[earlier] == "(" and statement.depths[earlier] == depth - 1:
            return statement.tokens[earlier - 1] == "CAST"
    return False


def _long_name(statement: Statement) -> bool:
    return any(
        len(token.lstrip(":").encode()) > IDENTIFIER_BYTES_MAX
        for token in statement.tokens
        if re.match(r":?[A-Z_]", token)
    )


def _merge_updates_its_key(statement: Statement) -> bool:
    if not statement.tokens or statement.tokens[0] != "MERGE":
        return False
    on = re.search(r"\bON\s*\((.*?)\)\s*WHEN\b", statement.masked, re.IGNORECASE | re.DOTALL)
    if on is None:
        return False
    keys = {name.upper() for name in re.findall(r"(?:\w+\.)?(\w+)\s*=", on.group(1))}
    after_set = re.search(
        r"\bUPDATE\s+SET\s+(.*?)(?=\bWHEN\b|\bWHERE\b|$)", statement.masked, re.I | re.S
    )
    changed = re.findall(r"(?:^|,)\s*(?:\w+\.)?(\w+)\s*=", after_set.group(1)) if after_set else []
    return any(name.upper() in keys for name in changed)


def _update_from(statement: Statement) -> bool:
    pairs = list(zip(statement.tokens, statement.depths, strict=True))
    return pairs[:1] == [("UPDATE", 0)] and ("FROM", 0) in pairs


def _interval_in_words(statement: Statement) -> bool:
    return re.search(r"\bINTERVAL\s+'[^']*[a-z][^']*'", statement.text, re.I) is not None


def _default_after_constraint(statement: Statement) -> bool:
    if statement.tokens[:2] != ("CREATE", "TABLE") or "(" not in statement.tokens:
        return False
    items = statement.items(statement.tokens.index("("))
    return any("DEFAULT" in item and "NULL" in item[: item.index("DEFAULT")] for item in items)


def _key_of_zoned_time(statement: Statement) -> bool:
    tokens = statement.tokens
    if tokens[:2] != ("CREATE", "TABLE") or "(" not in tokens:
        return False
    items = list(statement.items(tokens.index("(")))
    barred = {item[0] for item in items if item and ("ZONE" in item or "CLOB" in item)}
    for item in items:
        inline = item and item[0] in barred and ("PRIMARY" in item or "UNIQUE" in item)
        listed = {"PRIMARY", "UNIQUE"} & set(item) and barred & set(item[item.index("(") :])
        if inline or ("(" in item and listed):
            return True
    return False


def _long_in_list(statement: Statement) -> bool:
    return any(
        token == "IN"
        and statement.token_after(index) == "("
        and sum(1 for _ in statement.items(index + 1)) > IN_LIST_MAX
        for index, token in enumerate(statement.tokens)
    )


def _ddl_with_binds(statement: Statement) -> bool:
    ddl = statement.tokens[:1] in (("CREATE",), ("ALTER",), ("DROP",), ("TRUNCATE",))
    return ddl and any(token[0] == ":" and len(token) > 1 for token in statement.tokens)


def _text_too_wide(statement: Statement) -> bool:
    sizes = re.findall(r"\bVARCHAR2?\s*\(\s*(\d+)", statement.masked, re.IGNORECASE)
    return any(int(size) > VARCHAR_SIZE_MAX for size in sizes)


RULES = (
    _pattern(933, "a statement has no ; at its end", "UPDATE a SET n = 1;", r";\s*$"),
    Rule(933, "a table's alias stands without AS", "SELECT t.n FROM a AS t", _alias_after_as),
    _pattern(933, "LIMIT is unknown (FETCH FIRST)", "SELECT n FROM a LIMIT 1", r"\bLIMIT\s+[:\d(]"),
    _pattern(
        933,
        "ON CONFLICT is unknown (MERGE)",
        "INSERT INTO a (n) VALUES (:n) ON CONFLICT DO NOTHING",
        r"\bON\s+CONFLICT\b",
    ),
    _pattern(
        922,
        "IF [NOT] EXISTS in DDL is 23ai's",
        "CREATE TABLE IF NOT EXISTS a (n NUMBER(10))",
        r"^\s*(CREATE|DROP|ALTER)\b[^(]*\bIF\s+(NOT\s+)?EXISTS\b",
    ),
    _pattern(
        925,
        "RETURNING needs INTO and binds",
        "UPDATE a SET n = n + 1 RETURNING n",
        r"\bRETURNING\b(?!.*\bINTO\b)",
    ),
    _pattern(
        902,
        "a type that the database does not have",
        "CREATE TABLE a (n BIGINT)",
        r"(?:[(,]\s*\w+|\bAS|\bADD\s*\(?\s*\w+)\s+(BOOLEAN|BOOL|BIGINT|TEXT|SERIAL|BIGSERIAL|TINYINT"
        r"|DATETIME|BYTEA|UUID|JSONB?|TIME|TIMESTAMPTZ|DOUBLE(?!\s+PRECISION))\s*(?=[,()]|NOT\b|NULL\b"
        r"|DEFAULT\b|PRIMARY\b|UNIQUE\b|$)",
    ),
    _pattern(
        904,
        "TRUE and FALSE are no literals in SQL before 23ai",
        "UPDATE a SET n = TRUE",
        r"(?:[=(,]|\bSELECT|\bTHEN|\bELSE|\bIS|\bDEFAULT)\s*(TRUE|FALSE)\b",
    ),
    _pattern(
        933,
        "VALUES takes one row",
        "INSERT INTO a (n) VALUES (1), (2)",
        r"\bVALUES\s*\((?:[^()]|\([^()]*\))*\)\s*,\s*\(",
    ),
    Rule(923, "SELECT needs FROM (FROM DUAL)", "SELECT 1", _select_without_from),
    Rule(1745, "a bind bears a reserved word", "UPDATE a SET n = :date", _reserved_bind),
    Rule(904, "a name is a reserved word", "CREATE TABLE a (level NUMBER(10))", _reserved_name),
    _pattern(
        0, "'' is NULL: it equals nothing", "UPDATE a SET n = 1 WHERE owner = ''", r"(?<!\w)''"
    ),
    Rule(
        972,
        "a name is longer than 30 bytes (the limit of 12.1)",
        "SELECT n FROM a_name_of_more_than_thirty_bytes",
        _long_name,
    ),
    _pattern(
        904,
        "a function that the database does not have",
        "SELECT NOW() FROM DUAL",
        r"(?<![.\w])(NOW|UNIX_TIMESTAMP|IFNULL|ISNULL|GETDATE|STRFTIME|CLOCK_TIMESTAMP|UNIXEPOCH|LEN"
        r"|JULIANDAY|DATEDIFF|DATEADD|UTC_TIMESTAMP|CHAR_LENGTH|OCTET_LENGTH|SUBSTRING|LEFT|RIGHT"
        r"|RANDOM|GEN_RANDOM_UUID|UUID|STRING_AGG|GROUP_CONCAT|TO_JSON|UNNEST|ANY_VALUE|CONCAT_WS"
        r"|POSITION|DATE_TRUNC|GENERATE_SERIES|IF|IIF)\s*\(",
    ),
    _pattern(
        923,
        "a clock function takes no empty parentheses",
        "SELECT SYSTIMESTAMP() FROM DUAL",
        r"\b(SYSTIMESTAMP|SYSDATE|CURRENT_TIMESTAMP|CURRENT_DATE)\s*\(\s*\)",
    ),
    Rule(
        38104,
        "MERGE changes a column of its ON clause",
        "MERGE INTO a t USING (SELECT :n AS n FROM DUAL) s ON (t.n = s.n)"
        " WHEN MATCHED THEN UPDATE SET t.n = s.n",
        _merge_updates_its_key,
    ),
    _pattern(
        905,
        "MERGE has WHERE, not AND, after MATCHED",
        "MERGE INTO a t USING b s ON (t.k = s.k) WHEN MATCHED AND t.n < 3 THEN UPDATE SET t.n = 3",
        r"\bMATCHED\s+AND\b",
    ),
    _pattern(
        969,
        "MERGE needs parentheses around its ON condition",
        "MERGE INTO a t USING b s ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.n = 3",
        r"^\s*MERGE\b.*?\bUSING\b(?:(?!\bWHEN\b).)*\bON\s+(?!\()",
    ),
    Rule(
        933,
        "UPDATE has no FROM",
        "UPDATE a SET n = b.n FROM b WHERE b.k = a.k",
        _update_from,
    ),
    _pattern(
        2014,
        "FOR UPDATE goes with neither DISTINCT, GROUP BY nor FETCH FIRST",
        "SELECT DISTINCT n FROM a FOR UPDATE",
        r"(\bSELECT\s+DISTINCT\b|\bGROUP\s+BY\b|\bFETCH\s+(FIRST|NEXT)\b|\bUNION\b).*\bFOR\s+UPDATE\b",
    ),
    Rule(
        1867,
        "an interval's text has no words",
        "SELECT SYSTIMESTAMP - INTERVAL '5 seconds' FROM DUAL",
        _interval_in_words,
    ),
    _pattern(911, ":: casts nothing (CAST)", "SELECT n::varchar FROM a", r"::"),
    _pattern(911, "binds are :name", "UPDATE a SET n = ?", r"\?|%s\b|%\(\w+\)s|\$\d"),
    _pattern(911, "names are not quoted like that", "SELECT `n` FROM a", r"[`\[\]]"),
    _pattern(911, "a name begins with a letter", "SELECT _n FROM a", r"(?<![\w$#\"])_\w"),
    _pattern(936, "equality is one =", "SELECT n FROM a WHERE n == 1", r"=="),
    _pattern(
        900,
        "a transaction begins by itself",
        "START TRANSACTION",
        r"^\s*(START\s+TRANSACTION|BEGIN\s*(TRANSACTION|IMMEDIATE|WORK)?\s*;?\s*$|REPLACE\s+INTO\b)",
    ),
    _pattern(
        925,
        "INSERT OR ... is SQLite's",
        "INSERT OR IGNORE INTO a (n) VALUES (1)",
        r"^\s*INSERT\s+OR\b",
    ),
    Rule(
        907,
        "DEFAULT stands before NOT NULL",
        "CREATE TABLE a (n NUMBER(10) NOT NULL DEFAULT 0)",
        _default_after_constraint,
    ),
    Rule(
        2329,
        "a key holds neither TIMESTAMP WITH TIME ZONE nor CLOB",
        "CREATE TABLE a (t TIMESTAMP(6) WITH TIME ZONE, CONSTRAINT a_pk PRIMARY KEY (t))",
        _key_of_zoned_time,
    ),
    _pattern(
        905, "DROP ... CASCADE CONSTRAINTS", "DROP TABLE a CASCADE", r"^\s*DROP\b.*\bCASCADE\s*$"
    ),
    _pattern(
        906, "VARCHAR2 needs its size", "CREATE TABLE a (n VARCHAR2)", r"\bVARCHAR2\b(?!\s*\()"
    ),
    Rule(910, "VARCHAR2 holds 4,000 at most", "CREATE TABLE a (n VARCHAR2(9000))", _text_too_wide),
    _pattern(
        905,
        "WITH needs no RECURSIVE",
        "WITH RECURSIVE r AS (b) SELECT 1 FROM r",
        r"\bWITH\s+RECURSIVE\b",
    ),
    _pattern(
        933, "EXCEPT is MINUS before 21c", "SELECT n FROM a EXCEPT SELECT n FROM b", r"\bEXCEPT\b"
    ),
    Rule(
        1795,
        "IN takes 1,000 values at most",
        "SELECT n FROM a WHERE n IN (" + ", ".join(map(str, range(1_001))) + ")",
        _long_in_list,
    ),
    _pattern(
        920,
        "tuples are not compared so",
        "SELECT n FROM a WHERE (n, m) > (:n, :m)",
        r"\b(WHERE|AND|OR|ON)\s*\(\s*[\w.:]+\s*,[^()]*\)\s*(=|<|>|!=)",
    ),
    _pattern(
        909,
        "COUNT takes one argument",
        "SELECT COUNT(DISTINCT n, m) FROM a",
        r"\bCOUNT\s*\([^()]*,",
    ),
    _pattern(923, "* stands alone (a.*)", "SELECT *, n FROM a", r"\bSELECT\s+\*\s*,"),
    Rule(1027, "DDL takes no binds", "CREATE TABLE a (n NUMBER(10) DEFAULT :n)", _ddl_with_binds),
)
