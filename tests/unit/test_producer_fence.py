"""A producer's lives on disk, where two processes of a buffer stand beside each other."""

from __future__ import annotations

from pathlib import Path

from pxrs_ray.files import Files
from pxrs_ray.log.producer_fence import ProducerFence


def test_a_life_that_another_process_has_begun_is_known_before_one_begins(tmp_path: Path) -> None:
    former = ProducerFence(tmp_path, Files())
    successor = ProducerFence(tmp_path, Files())
    begun = former.begin("q", "shop", 4, "one")
    assert begun is not None and begun.token == "one"
    # With the same number, for clocks agree: it is told who has it, and asks with a higher one.
    told = successor.begin("q", "shop", 4, "two")
    assert told is not None and told.token == "one"
    third = successor.begin("q", "shop", 5, "two")
    assert third is not None and third.token == "two"
    assert ProducerFence(tmp_path, Files()).lives() == [third]


def test_a_queue_that_goes_takes_no_life_of_others_along(tmp_path: Path) -> None:
    former = ProducerFence(tmp_path, Files())
    former.begin("gone", "shop", 1, "one")
    successor = ProducerFence(tmp_path, Files())
    former.begin("q", "shop", 4, "two")
    successor.drop_queue("gone")
    kept = [(life.queue, life.number) for life in ProducerFence(tmp_path, Files()).lives()]
    assert kept == [("q", 4)]


def test_what_another_process_has_begun_of_others_is_kept(tmp_path: Path) -> None:
    former = ProducerFence(tmp_path, Files())
    successor = ProducerFence(tmp_path, Files())
    former.begin("q", "shop", 4, "one")
    successor.begin("q", "mill", 1, "two")
    kept = {life.producer: life.number for life in ProducerFence(tmp_path, Files()).lives()}
    assert kept == {"shop": 4, "mill": 1}
