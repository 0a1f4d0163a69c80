"""The lag of a group over time as a picture, for a notebook.

from pxrs_ray.status.lag_plot import watch
watch(topology.group("billing"), seconds=10)
"""

from __future__ import annotations

import time
from typing import Protocol

from pxrs_ray.late_dataclass import dataclass

WIDTH, HEIGHT, MARGIN = 640, 160, 24


class HasLag(Protocol):
    """A group, as far as it matters here."""

    name: str

    def lag(self) -> int:
        """Messages not passed yet."""


@dataclass(frozen=True, slots=True)
class LagPlot:
    """Moments in seconds, and the lag at each; a notebook shows it as a line."""

    group: str
    points: tuple[tuple[float, int], ...]

    def __repr__(self) -> str:
        lags = [lag for _, lag in self.points]
        return f"LagPlot({self.group!r}, {len(lags)} points, lag {lags[0]} to {lags[-1]})"

    def _repr_html_(self) -> str:
        last_s = max(self.points[-1][0], 1e-9)
        top = max(1, *(lag for _, lag in self.points))
        places = " ".join(
            f"{MARGIN + at_s / last_s * (WIDTH - 2 * MARGIN):.1f},"
            f"{HEIGHT - MARGIN - lag / top * (HEIGHT - 2 * MARGIN):.1f}"
            for at_s, lag in self.points
        )
        return (
            f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="lag over time" '
            f'font-family="sans-serif" font-size="12" fill="currentColor">'
            f'<text x="{MARGIN}" y="14">lag, up to {top:,}</text>'
            f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 6}" text-anchor="end">{last_s:.0f} s</text>'
            f'<polyline points="{places}" fill="none" stroke="darkorange" stroke-width="2"/></svg>'
        )


def watch(group: HasLag, seconds: float = 10.0, interval_s: float = 0.25) -> LagPlot:
    """Look at a group's lag for a while, and show it."""
    began_s = time.monotonic()
    points: list[tuple[float, int]] = []
    while not points or points[-1][0] < seconds:
        if points:
            time.sleep(interval_s)
        points.append((time.monotonic() - began_s, group.lag()))
    return LagPlot(group.name, tuple(points))
