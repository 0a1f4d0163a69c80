"""The rules by which a real Oracle rejects SQL: each catches its example, none catches good SQL."""

from __future__ import annotations

import pytest

from pxrs_ray.store.sql import rows
from pxrs_ray.store.sql.oracle import OracleDialect
from pxrs_ray.store.sql.schema import WRITES, renewal, tables, upgrades
from pxrs_ray.store.sql.sql_store import fenced_commit_sql
from tests.contract.oracle_stand_in.oracle_rules import RULES, Rule, violations

GOOD = (
    "SELECT 1 AS one FROM DUAL",
    "SELECT t.level_no, t.n AS order_no FROM a t WHERE t.d = DATE '2026-01-01'",
    "SELECT CAST(:n AS NUMBER) AS n, CAST(:v AS VARCHAR2(255 CHAR)) AS v FROM DUAL",
    "SELECT (SELECT MAX(n) FROM b) AS top, EXTRACT(SECOND FROM (s - t)) AS part FROM a",
    "SELECT n FROM a UNION ALL SELECT n FROM b ORDER BY 1 FETCH FIRST 5 ROWS ONLY",
    "SELECT a.n, b.n FROM a JOIN (SELECT n FROM c) b ON b.n = a.n WHERE (a.n + 1) * 2 > :n",
    "SELECT n FROM a WHERE owner IS NULL AND text <> 'LIMIT 5; ON CONFLICT it''s' -- a ; comment",
    "SELECT n FROM a WHERE (k, n) IN (SELECT k, MAX(n) FROM a GROUP BY k)",
    "SELECT n /* SELECT 1; LIMIT 3 */ FROM a WHERE n = :group_name FOR UPDATE",
    "SELECT SYSTIMESTAMP - NUMTODSINTERVAL(:s, 'SECOND') AS t FROM DUAL",
    "SELECT n FROM a OFFSET 10 ROWS FETCH NEXT 5 ROWS ONLY",
    "INSERT INTO a (k, n, d) VALUES (:k, NVL(:n, 0), SYSTIMESTAMP + INTERVAL '5' SECOND)",
    "INSERT INTO a (k, n) SELECT :k, :n FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM a WHERE k = :k)",
    "UPDATE a SET n = n + 1, k = (SELECT MAX(k) FROM b), d = EXTRACT(DAY FROM d) WHERE k = :k",
    "UPDATE a SET n = 1 RETURNING n INTO :result",
    "DELETE FROM a WHERE n BETWEEN :low AND :high",
    "MERGE INTO a t USING (SELECT :k AS k, :n AS n FROM DUAL) s ON (t.k = s.k) "
    "WHEN MATCHED THEN UPDATE SET t.n = s.n WHERE t.n < s.n "
    "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)",
    "CREATE TABLE a (k VARCHAR2(255 CHAR) NOT NULL, n NUMBER(19) DEFAULT 0 NOT NULL, "
    "t TIMESTAMP(6) WITH TIME ZONE, x DOUBLE PRECISION, c CLOB, "
    "CONSTRAINT a_pk PRIMARY KEY (k, n))",
    "CREATE UNIQUE INDEX a_ix ON a (n, k)",
    "ALTER TABLE a ADD (note VARCHAR2(20 CHAR))",
    "ALTER SESSION SET TIME_ZONE = '+00:00'",
    "DROP TABLE a CASCADE CONSTRAINTS",
    "SET TRANSACTION READ ONLY",
)


DIALECT = OracleDialect()
# The texts that the store keeps; what it builds on the way, the stand-in judges as it is sent.
STORED = (
    *(DIALECT.create_table(name, body) for name, body in tables(DIALECT).items()),
    *(step for steps in upgrades(DIALECT).values() for step in steps),
    *(update.sql for update in WRITES.values()),
    renewal(DIALECT).sql,
    DIALECT.insert_new("pxrs_change", rows.CHANGE_COLUMNS, ["group_name", "version"]),
    rows.SNAPSHOT,
    rows.ROWS_BETWEEN,
    rows.CHANGES + DIALECT.page(0, 10),
    rows.expired_sql(DIALECT),
    fenced_commit_sql(),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"ORA-{rule.code:05d} {rule.meaning}")
def test_each_rule_catches_its_bad_example(rule: Rule) -> None:
    assert rule in violations(rule.bad)


@pytest.mark.parametrize("sql", [*GOOD, *STORED], ids=lambda sql: sql[:40])
def test_good_sql_breaks_no_rule(sql: str) -> None:
    assert [rule.meaning for rule in violations(sql)] == []


@pytest.mark.parametrize(
    ("code", "sql"),
    [
        (933, "SELECT b.n FROM (SELECT n FROM a) AS b"),
        (933, "UPDATE a AS t SET n = 1"),
        (933, "SELECT a.n FROM a JOIN b AS c ON c.n = a.n"),
        (923, "SELECT n FROM a WHERE n = (SELECT 1)"),
        (923, "SELECT 1 UNION ALL SELECT 2 FROM DUAL"),
        (904, "SELECT n AS level FROM a"),
        (904, "UPDATE a SET comment = 1"),
        (904, "CREATE TABLE a (n NUMBER(1), size NUMBER(9))"),
        (902, "CREATE TABLE a (k VARCHAR2(9), flag BOOLEAN NOT NULL)"),
        (902, "SELECT CAST(n AS TEXT) FROM a"),
        (1745, "SELECT n FROM a WHERE k = :ROWNUM"),
        (933, "INSERT INTO a (n, k) VALUES (LOWER('x'), 2), (LOWER('y'), 3)"),
        (2329, "CREATE TABLE a (t TIMESTAMP(6) WITH TIME ZONE PRIMARY KEY)"),
        (
            38104,
            "MERGE INTO a t USING b s ON (t.k = s.k AND t.n = s.n) WHEN MATCHED THEN "
            "UPDATE SET t.z = 1, t.n = 2",
        ),
    ],
)
def test_the_same_faults_in_other_words(code: int, sql: str) -> None:
    assert code in [rule.code for rule in violations(sql)]
