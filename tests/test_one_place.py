"""What the product does in many places is written in one of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.test_tidy import ROOT, files_of_the_product, name_of
from tests.unit.test_options_are_read import INNER

# What must not be written again: where it is, and a pattern that finds it.
ONE_PLACE = {
    "names that are nearly alike": ("pxrs_ray/suggest.py", r"\bdifflib\b"),
    "a pause that doubles": (
        "pxrs_ray/backoff.py",
        r"\b2(\.0)? ?\*\* ?min\(|<< min\(|pause\w* \* 2\b|\* 2, \w*(MOST|most)\w*\)",
    ),
    "a table for people": ("pxrs_ray/status/rendering.py", r"\brich\.table\b|<table"),
    "a line of an error": (
        "pxrs_ray/supervision/restart_rules.py",
        r"\.splitlines\(\)\[|_lines\(error\)\[",
    ),
    "Ray's actors by name": (
        "actors/cluster/named_actors.py",
        r"ray\.get_actor\([^)]*namespace|\blifetime=",
    ),
    # Each that is Python's own costs every process that loads it a third of a millisecond.
    "a dataclass (import it from pxrs_ray.late_dataclass)": (
        "pxrs_ray/late_dataclass.py",
        r"from dataclasses import .*\bdataclass\b|@dataclasses\.dataclass",
    ),
    "how many partitions there may be": ("pxrs_ray/model.py", r"\b65_?536\b|^PARTITIONS_MAX ="),
}


def written_in(pattern: str) -> set[str]:
    found = re.compile(pattern, re.MULTILINE)
    return {name_of(path) for path in files_of_the_product() if found.search(path.read_text())}


@pytest.mark.parametrize("what", ONE_PLACE)
def test_it_is_written_in_one_place(what: str) -> None:
    place, pattern = ONE_PLACE[what]
    assert written_in(pattern) == {place}


@pytest.mark.parametrize("kind", INNER)
def test_each_inner_setting_is_read(kind: type) -> None:
    """A setting that the configuration fills in, and nothing goes by, would be a dead option."""
    own = Path(str(__import__(kind.__module__, fromlist=["x"]).__file__))
    text = "\n".join(
        path.read_text()
        for path in files_of_the_product()
        if not name_of(path).startswith("pxrs_ray/config/") and path != own.resolve()
    )
    inside = own.read_text()
    unread = [
        each.name
        for each in fields(kind)
        if not re.search(rf"\.{each.name}\b(?! ?=[^=])", text)
        and not re.search(rf"(self|limits|rules|settings)\.{each.name}\b(?! ?=[^=])", inside)
    ]
    assert ROOT in own.resolve().parents and unread == []
