"""What may be a handler, and whether it takes batches."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.consumer.delivery import DeliveredBatch
from pxrs_ray.consumer.handler_shape import check_fits, check_shape, shape_of, wants_batches
from pxrs_ray.errors import HandlerError


class OfMessages:
    def handle(self, message: Any) -> None: ...


class OfBatches:
    def handle_batch(self, batch: Any) -> None: ...


class Annotated:
    def handle(self, batch: DeliveredBatch) -> None: ...


class Neither:
    pass


def one(message: Any) -> None: ...


def many(batch: DeliveredBatch) -> None: ...


@pytest.mark.parametrize(
    ("handler", "batches"),
    [
        (one, False),
        (many, True),
        (OfMessages, False),
        (OfBatches, True),
        (Annotated, True),
        (OfMessages(), False),
        (OfBatches(), True),
        (Annotated(), True),
    ],
)
def test_it_is_known_without_and_with_an_object(handler: Any, batches: bool) -> None:
    check_shape(handler)
    assert wants_batches(handler) == shape_of(handler).wants_batch == batches


@pytest.mark.parametrize("handler", [Neither, Neither(), 7, "x"])
def test_what_is_none_is_refused(handler: Any) -> None:
    with pytest.raises(HandlerError, match="handle"):
        check_shape(handler)


def test_batches_are_for_ordered_processing() -> None:
    check_fits("h", True, "ordered", "g")
    check_fits("h", False, "by_key", "g")
    with pytest.raises(HandlerError, match="takes batches, and the processing mode of group g"):
        check_fits("h", True, "packs", "g")


class Model:
    def __init__(self, model: str, temperature: float = 0.0) -> None:
        self.model, self.temperature = model, temperature

    def handle(self, message: Any) -> None: ...


def test_a_class_is_made_with_its_settings() -> None:
    made = shape_of(Model, settings={"model": "small", "temperature": 0.5}).target
    assert (made.model, made.temperature) == ("small", 0.5)


@pytest.mark.parametrize(
    ("handler", "settings", "words"),
    [
        (Model, {}, "missing a required argument: 'model'"),
        (Model, {"model": "m", "heat": 1}, "unexpected keyword argument 'heat'"),
        (one, {"model": "m"}, "takes no settings"),
        (Model("m"), {"model": "m"}, "takes no settings"),
    ],
)
def test_settings_that_do_not_fit_are_told(handler: Any, settings: Any, words: str) -> None:
    with pytest.raises(HandlerError, match=words):
        shape_of(handler, settings=settings)


class Bound:
    def two(self, message: Any, other: Any) -> None: ...

    def one(self, message: Any) -> None: ...


class Static:
    @staticmethod
    def handle(message: Any) -> None: ...


class NoMessage:
    def handle(self) -> None: ...


@pytest.mark.parametrize(
    ("handler", "named"),
    [
        (lambda message, other: None, "<lambda>"),
        (lambda: None, "<lambda>"),
        (lambda *, message: None, "<lambda>"),
        (Bound().two, "Bound.two"),
        (NoMessage, "NoMessage.handle"),
        (NoMessage(), "NoMessage.handle"),
    ],
)
def test_what_takes_no_single_argument_is_refused_by_name(handler: object, named: str) -> None:
    with pytest.raises(HandlerError, match=f"{named}.*must take one argument"):
        check_shape(handler)


@pytest.mark.parametrize(
    "handler",
    [
        Bound().one,
        Static,
        Static(),
        OfMessages,
        OfBatches(),
        print,
        lambda message, other=1: None,
        lambda *messages: None,
    ],
)
def test_what_can_be_called_with_one_argument_is_a_handler(handler: object) -> None:
    check_shape(handler)
