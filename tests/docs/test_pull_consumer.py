"""A pull consumer shows its users what the documents name, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from pxrs_ray.actors.client.pull_consumer import PullConsumer

DOCS = Path(__file__).parents[2] / "docs" / "processing.md"


def documented() -> set[str]:
    """The names in the table of `PullConsumer`."""
    table = DOCS.read_text().split("| `PullConsumer` |")[1].split("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)", table, re.MULTILINE))


def test_a_pull_consumer_has_the_methods_that_are_documented_and_no_other() -> None:
    shown = {name for name in dir(PullConsumer) if not name.startswith("_")}
    assert shown == documented()
    assert {"poll", "commit", "close"} <= shown
