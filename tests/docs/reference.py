"""Writes the pages of docs/ that say what the code says: options, metrics, errors.

    python -m tests.docs.reference --rewrite

A test holds the pages to what this makes.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pxrs_ray import errors
from pxrs_ray.actors.coordinator.metrics import METRICS, MS_BOUNDARIES
from pxrs_ray.config import ByKey, GroupConfig, Ordered, Packs, PxrsConfig, QueueConfig
from pxrs_ray.config.declare import Effect
from pxrs_ray.config.diff import declared, told
from pxrs_ray.config.options import GroupOptions, ScalingConfig
from pxrs_ray.config.processing_modes import ProcessingMode
from pxrs_ray.config.queue_options import QueueOptions
from tests.docs.api import api_pages
from tests.docs.remedies import REMEDIES

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
MADE = "<!-- Made by `python -m tests.docs.reference --rewrite`: change the code instead. -->"
MODES: tuple[type[ProcessingMode], ...] = (Ordered, ByKey, Packs)

HAPPENS = {
    Effect.COORDINATOR: "The coordinator uses the new value from then on.",
    Effect.BUFFERS: "Each buffer uses the new value from then on, for all its open logs.",
    Effect.CONSUMERS: "Each consumer of the group uses the new value, without a pause.",
    Effect.WORKERS: "Each consumer keeps its process and its partitions. A partition finishes its "
    "current message, and uses the new value from the next one on. The handler's `on_revoked` and "
    "`on_assigned` are called.",
    Effect.NEW_CONSUMERS: "One consumer after the other hands over its partitions, ends, and "
    "starts again in a new process.",
    Effect.START: "All consumers of the group hand over and end, and new ones begin.",
    Effect.PRODUCERS: "Producers use it when they start. Running producers keep their value.",
    Effect.NEW_COORDINATOR: "The coordinator uses it after its restart, which moves no partition.",
    Effect.FIXED: "Refused while the topology holds messages; another topology can have it.",
}


def pages() -> dict[str, str]:
    """Every generated page by its name."""
    made = {"options.md": options(), "metrics.md": metrics(), "errors.md": error_page()}
    return {**made, **api_pages()}


def options() -> str:
    """Every option, with default, bounds and how it may change."""
    lines = [
        "# Options",
        MADE,
        "",
        "Options are set in the topology file, in environment variables (`PXRS_LINGER_MS`, "
        "`PXRS_GROUPS__BILLING__CONSUMERS`), or as arguments of `PxrsConfig`. Arguments override "
        "variables, and variables override the file. An option of queues or groups that is set for "
        "the topology itself is the default of all its queues or groups.",
        "",
        "The column *changes* says how a running topology takes a change; `pxrs up` shows the same "
        "before it makes the change. A *live* change replaces no process. A default set for the "
        "topology changes as the option of its queues or groups does. A consumer in your own "
        "program (`group.consumer()`) looks for changed options every five seconds.",
        "",
        "| changes | what happens |",
        "|---|---|",
        *(f"| {change.told} | {HAPPENS[change]} |" for change in Effect),
    ]
    shared = {*QueueOptions.model_fields, *GroupOptions.model_fields}
    own = [name for name in PxrsConfig.model_fields if name not in shared]
    lines += _section("The topology", PxrsConfig, own)
    lines += _section("`[queues.NAME]`", QueueConfig, list(QueueConfig.model_fields))
    lines += _section("`[groups.NAME]`", GroupConfig, list(GroupConfig.model_fields))
    lines += _section("`[groups.NAME.scaling]`", ScalingConfig, list(ScalingConfig.model_fields))
    lines += [
        "",
        "## The modes of `processing`",
        "",
        '`processing = "by_key"` names a mode, with its defaults. A table says its options too: '
        '`processing = { mode = "by_key", parallelism = 32 }`, or `[groups.NAME.processing]`. In '
        "Python: `processing=ByKey(parallelism=32)`. As variables: "
        "`PXRS_GROUPS__BILLING__PROCESSING=by_key` and "
        "`PXRS_GROUPS__BILLING__PROCESSING__PARALLELISM=32`. A variable that names no mode belongs "
        "to the mode that the file names. Which mode for what: [processing.md](processing.md).",
    ]
    for mode in MODES:
        name = mode.model_fields["mode"].default
        own = [option for option in mode.model_fields if option != "mode"]
        lines += _section(f'`[groups.NAME.processing]` with `mode = "{name}"`', mode, own)
    return "\n".join(lines) + "\n"


def _section(title: str, model: Any, names: list[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "", "| option | default | values | changes | meaning |")
    yield "|---|---|---|---|---|"
    schema = model.model_json_schema()["properties"]
    for name in names:
        field, described = model.model_fields[name], schema[name]
        default = "needed" if field.is_required() else f"`{_shown(field.default)}`"
        change = told(declared(field))
        text = (field.description or "").replace("|", "\\|")
        yield f"| `{name}` | {default} | {_values(described)} | {change} | {text} |"


def _shown(value: Any) -> str:
    if value is None or value == "" or value == {}:
        return "none"
    if isinstance(value, ProcessingMode):
        return value.mode
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(told: dict[str, Any]) -> str:
    if "oneOf" in told:  # kinds, told apart by their mode
        return ", ".join(f"`{mode.model_fields['mode'].default}`" for mode in MODES)
    one = next((each for each in told.get("anyOf", [told]) if each.get("type") != "null"), told)
    if "enum" in one:
        return ", ".join(f"`{value}`" for value in one["enum"])
    low = one.get("minimum", one.get("exclusiveMinimum"))
    high = one.get("maximum")
    kind = {"integer": "number", "array": "list", "object": "table", "string": "text"}.get(
        str(one.get("type")), str(one.get("type", "table"))
    )
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    return f"{kind} from {low:,}" if low is not None else kind


def metrics() -> str:
    """Every metric, with kind, labels and meaning."""
    bounds = ", ".join(f"{bound:g}" for bound in MS_BOUNDARIES)
    lines = [
        "# Metrics",
        MADE,
        "",
        "The coordinator of a topology reports these metrics every five seconds, and every ten "
        "while nothing changes, through "
        "`ray.util.metrics`. They add no cost per message. In Prometheus each name begins with "
        "`ray_pxrs_`, and a counter's ends with `_total`. Use `rate(...)` of a counter for a rate.",
        "",
        f"Histograms have the bounds {bounds}.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    for name, (kind, labels, text) in METRICS.items():
        full = f"ray_pxrs_{name}" + ("_total" if kind == "counter" else "")
        lines.append(f"| `{full}` | {kind} | {', '.join(labels)} | {text} |")
    lines += [
        "",
        "`cause` is one of join, leave, death, lease, configuration, asked, seek, raised.",
        "",
        "`docs/ops/grafana.json` is a Grafana board, `docs/ops/alerts.yml` has alert rules.",
    ]
    return "\n".join(lines) + "\n"


def error_page() -> str:
    """Every error, when it is raised, and what to do."""
    lines = [
        "# Errors and remedies",
        MADE,
        "",
        "All are `PxrsError`s, from `pxrs_ray.errors`. On the command line each is one line and "
        "status 1; wrong usage is status 2; `pxrs --debug ...` shows where it comes from.",
        "",
        "| error | is a | raised when | what to do |",
        "|---|---|---|---|",
    ]
    for name, kind in error_classes().items():
        text = re.sub(r"\s+", " ", (kind.__doc__ or "").split("\n\n")[0]).strip()
        text = text.removeprefix("Raised when ").rstrip(".")
        lines.append(f"| `{name}` | {kind.__bases__[0].__name__} | {text} | {REMEDIES[name]} |")
    return "\n".join(lines) + "\n"


def error_classes() -> dict[str, type[errors.PxrsError]]:
    """Every error that can be met, but those that only sum others up."""
    found = inspect.getmembers(errors, inspect.isclass)
    ours = {n: c for n, c in found if issubclass(c, errors.PxrsError)}
    return {n: c for n, c in ours.items() if (c.__doc__ or "").startswith("Raised when")}


if __name__ == "__main__":
    if sys.argv[1:] != ["--rewrite"]:
        sys.exit("usage: python -m tests.docs.reference --rewrite")
    for page, written in pages().items():
        (DOCS / page).write_text(written)
