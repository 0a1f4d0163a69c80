"""The data of the demonstration: payments that depend on nothing but their number.

So every run has the same payments, and the consumers must arrive at Spark's own sum over them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all Spark code has it

ACCOUNTS = 5_000


def raw_payments(spark: SparkSession, first: int, count: int, parts: int) -> DataFrame:
    """Payments as they come in: untidy text, some of it unusable, some of it twice."""
    return (
        spark.range(first, first + count, 1, parts)
        .selectExpr(
            "id",
            f"""case when pmod(xxhash64(id, 'bad'), 200) = 0 then null
            else concat(' acct-', lpad(cast(pmod(xxhash64(id, 'a'), {ACCOUNTS}) as string), 6, '0'))
            end as account""",
            """case when pmod(xxhash64(id, 'nan'), 300) = 0 then 'n/a'
            else cast((pmod(xxhash64(id, 'amount'), 100000) - 20000) / 100.0 as string)
            end as amount""",
            "timestamp_millis(1700000000000 + id * 20) as at",
            "if(pmod(xxhash64(id, 'twice'), 150) = 0, array(1, 2), array(1)) as times",
        )
        .selectExpr("id", "account", "amount", "at", "explode(times) as time")
    )


def clean_payments(raw: DataFrame) -> DataFrame:
    """Account, cents, and when: trimmed, parsed, each payment once, the unusable left out."""
    return (
        raw.where("time = 1")
        .selectExpr(
            "id",
            "trim(account) as account",
            "cast(round(try_cast(amount as decimal(12, 2)) * 100) as bigint) as cents",
            "at",
        )
        .where("account is not null and cents is not null")
    )


def spark_balances(clean: DataFrame) -> dict[str, tuple[int, int]]:
    """What Spark itself adds up: (cents, payments) by account."""
    summed = clean.groupBy("account").agg(F.sum("cents").alias("cents"), F.count("*").alias("n"))
    return {row.account: (row.cents, row.n) for row in summed.collect()}
