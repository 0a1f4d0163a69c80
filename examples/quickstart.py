"""The smallest whole thing: a queue, two consumers, a hundred messages, then a third consumer."""

from __future__ import annotations

import time

import ray

from pxrs_ray import Delivery, PxrsConfig, QueueConfig, deploy


def charge(message: Delivery) -> None:
    print(message.key, message.payload, message.context.idempotency_key)


if __name__ == "__main__":
    ray.init("local", num_cpus=2, include_dashboard=False)
    shop = deploy(
        PxrsConfig(name="shop", store="memory:", queues={"payments": QueueConfig(partitions=8)})
    )
    billing = shop.group("billing", queue="payments").start(charge, consumers=2)
    with shop.producer("payments") as producer:
        for n in range(100):
            producer.send(key=f"account-{n % 10}", payload=f"payment {n}")
    while billing.lag():
        time.sleep(0.1)
    billing.scale(3)
    print(billing.status())
    shop.shutdown()
    ray.shutdown()
