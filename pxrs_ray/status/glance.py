"""`Glance`: how a topology is, in a word: where several are shown beside each other. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pxrs_ray.errors import NotFound, PxrsError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.status.answers import TopologyStatus
from pxrs_ray.status.problem import Severity
from pxrs_ray.status.rendering import Line, Table, Tone, View
from pxrs_ray.status.units import span_text


@dataclass(frozen=True, slots=True)
class Glance:
    """A topology in a word; `tone` is one of `Tone`, '' while nobody has looked."""

    topology: str
    tone: str = ""
    words: str = ""

    def plain(self) -> dict[str, str]:
        """It as the page reads it."""
        return {"topology": self.topology, "tone": self.tone, "words": self.words}


def unanswered(topology: str, error: PxrsError) -> Glance:
    """How one is that did not tell its status."""
    words = "no coordinator" if isinstance(error, NotFound) else "does not answer"
    return Glance(topology, Tone.BAD, words)


def glance_of(status: TopologyStatus) -> Glance:
    """How a topology is: by the worst of what is wrong with it, and how much of that there is."""
    found = Counter(problem.severity for problem in status.problems)
    for severity, tone in ((Severity.PROBLEM, Tone.BAD), (Severity.WARNING, Tone.WARN)):
        if count := found[severity]:
            words = f"{count} {severity}{'s' if count > 1 else ''}"
            return Glance(status.topology, tone, words)
    return Glance(status.topology, Tone.GOOD, "ok")


@dataclass(frozen=True, slots=True)
class OneOfSeveral:
    """A topology among others: its glance, what it has to do, and why it did not answer."""

    glance: Glance
    groups: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    error: str = ""

    @classmethod
    def of(cls, status: TopologyStatus) -> OneOfSeveral:
        """One that has told its status."""
        lag = sum(group.lag for group in status.groups if not group.holds_delayed)
        lag_ms = max((group.lag_ms for group in status.groups), default=0)
        return cls(glance_of(status), len(status.groups), lag, lag_ms)

    @classmethod
    def failed(cls, topology: str, error: PxrsError) -> OneOfSeveral:
        """One that has not."""
        return cls(unanswered(topology, error), error=str(error))

    def plain(self) -> dict[str, object]:
        """It as programs read it."""
        told: dict[str, object] = {**self.glance.plain(), "groups": self.groups}
        return {**told, "lag": self.lag, "lag_ms": self.lag_ms, "error": self.error}


def glances_view(looked: Sequence[OneOfSeveral]) -> View:
    """Several topologies, one a line; and why some did not answer."""
    rows = [
        (
            each.glance.topology,
            Line(each.glance.words, Tone(each.glance.tone)),
            each.groups,
            each.lag,
            span_text(each.lag_ms),
        )
        for each in looked
    ]
    table = Table(("topology", "state", "groups", "lag", "behind"), rows)
    failed = [Line(f"PROBLEM: {each.error}", Tone.BAD) for each in looked if each.error]
    return View([table, *failed, Line("more of one: `pxrs status -t NAME`", Tone.DIM)])
