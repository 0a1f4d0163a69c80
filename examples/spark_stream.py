"""Stream files into a queue as they appear, each batch exactly once: `python spark_stream.py`.

Needs `pip install "pxrs-ray[spark]"` and Java.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import ray

from pxrs_ray import PxrsConfig, QueueConfig
from pxrs_ray.actors.client.topology import deploy
from pxrs_ray.spark import read_queue, spark_on_ray, write_stream

FILES, ROWS = 6, 500


def put(source: Path, number: int) -> None:
    rows = [{"account": f"acct-{n % 50}", "cents": n} for n in range(ROWS)]
    hidden = source / f".{number}"
    hidden.write_text("\n".join(json.dumps(row) for row in rows))
    hidden.rename(source / f"{number}.json")


def main() -> None:
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    with (
        tempfile.TemporaryDirectory() as name,
        spark_on_ray("spark-stream", executors=1, cores=1) as spark,
    ):
        folder = Path(name)
        source = folder / "source"
        source.mkdir()
        topology = deploy(
            PxrsConfig(
                name="spark-stream",
                data_dir=folder / "data",
                queues={"payments": QueueConfig(partitions=8)},
            )
        )
        for half in (range(FILES // 2), range(FILES // 2, FILES)):
            for number in half:
                put(source, number)
            # The second time it goes on where the first one stopped: the checkpoint says where.
            stream = write_stream(
                spark.readStream.schema("account string, cents long").json(str(source)),
                topology,
                "payments",
                key="account",
                checkpoint_location=str(folder / "checkpoint"),
                trigger_s=0.5,
            )
            stream.process_all()
            stream.stop()
            for report in stream.reports:
                print(report)
        count = read_queue(spark, topology, "payments").count()
        print(f"{count} messages in the queue")
        assert count == FILES * ROWS
        topology.shutdown()


if __name__ == "__main__":
    main()
