"""A group's partitions as one character each: readable with 16 and with 1,024 of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pxrs_ray.status.answers import GroupStatus, PartitionStatus

COLUMNS = 64
BARS = "·▁▂▃▄▅▆▇█"
LEGEND = "· no lag  ▁ to █ lag, ten times more every second step  ○ no owner  ✗ problem"


def cell(group: GroupStatus, partition: PartitionStatus) -> tuple[str, str]:
    """The character and the style of one partition."""
    from pxrs_ray.status.problem import Severity
    from pxrs_ray.status.problems import partition_problem

    problem = partition_problem(group, partition)
    if problem is not None and problem.severity is Severity.PROBLEM:
        return "✗", "bold red"
    if partition.owner is None:
        return "○", "yellow"
    lag = partition.lag or 0
    if lag == 0:
        return BARS[0], "green"
    # Two steps for each power of ten, so that 1 and 10,000 both show.
    step = min(len(BARS) - 1, len(str(lag)) * 2 - (1 if int(str(lag)[0]) < 4 else 0))
    return BARS[step], "cyan" if step < 5 else "yellow" if step < 8 else "red"


def partition_map(group: GroupStatus) -> Any:
    """Rows of COLUMNS partitions, each row under the number of its first."""
    from rich.text import Text

    text = Text()
    for start in range(0, len(group.partitions), COLUMNS):
        text.append(f"P{start:<5}", "dim")
        run, style = "", ""
        for partition in group.partitions[start : start + COLUMNS]:
            char, wanted = cell(group, partition)
            if wanted != style:
                text.append(run, style)
                run, style = "", wanted
            run += char
        text.append(run + "\n", style)
    return text
