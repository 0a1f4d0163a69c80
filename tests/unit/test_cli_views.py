"""What commands print of a status: for people, and for programs."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from pxrs_ray.cli import _map, _show, lag, seek, top, why
from pxrs_ray.model import Change, Message
from pxrs_ray.status.answers import GroupStatus
from pxrs_ray.status.places import WAITING
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.status.rates import Rates
from pxrs_ray.status.rendering import Line, Table, Tone, View
from pxrs_ray.status.stalls import Stall
from pxrs_ray.status.units import size_text, span_text
from pxrs_ray.status.views import group_state, group_view, topology_view
from tests.cli.pictures import buffer_place, group_status, topology_status


def shown(what: object) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(what)
    return out.getvalue()


def first_partition(**changes: object) -> GroupStatus:
    group = group_status()
    first = replace(group.partitions[0], **changes)  # type: ignore[arg-type]
    return replace(group, partitions=(first, *group.partitions[1:]))


def test_a_partition_that_gets_nowhere_is_a_problem_wherever_it_is_shown() -> None:
    group = first_partition(fenced_by=7)
    words = "fenced at its log"
    assert words in topology_status(group).problems[0].text
    assert words in repr(group) and "fenced" in shown(group_view(group))
    assert "firebrick" in group._repr_html_()
    assert _map.cell(group, group.partitions[0])[0] == "✗"


def test_a_topology_is_told_with_its_file_and_problems() -> None:
    found = topology_status(
        group_status(lag=2), reports=(Report(Kind.BUFFER_AWAY, "buffer 1 is away", 1),)
    )
    told = shown(topology_view(found, {"file": "a.toml", "sha256": "f" * 64, "at_ms": 1_000}))
    assert "shop" in told and "deployed from a.toml" in told and "PROBLEM: buffer 1" in told
    assert "3 of 3" in told and "240" in told


def test_a_topology_shows_where_each_buffer_is_and_how() -> None:
    away = buffer_place(
        1, state=WAITING, told="waits for host 10.0.0.2, away for 40 s", lease_left_ms=0, bytes=None
    )
    found = topology_status(group_status(), places=(buffer_place(0), away))
    lines = shown(topology_view(found, {})).splitlines()
    (first,) = [line for line in lines if "10.0.0.1" in line]
    assert all(word in first for word in ("node-0-o", "disk-0-o", "1.0 MB", "50.0 GB", "at home"))
    (second,) = [line for line in lines if "10.0.0.2" in line]
    assert "waits for host 10.0.0.2, away for 40 s" in second and "none" in second
    told = json.loads(json.dumps(_show.plain(found)))["places"]
    assert told[0]["disk"] == "disk-0-of-some-length" and told[1]["state"] == "waits"
    assert "waits for host 10.0.0.2" in repr(found) and "10.0.0.2" in found._repr_html_()


@pytest.mark.parametrize(
    ("group", "word"),
    [
        (group_status(), "ok"),
        (group_status(paused=True), "paused"),
        (group_status(problem="x"), "halted"),
        (group_status(consumers=0), "no consumers"),
        (first_partition(fenced_by=7), "partition fenced"),
        (first_partition(stall=Stall(75.0, 3)), "partition stalled"),
        (first_partition(problem="x"), "partition halted"),
        (first_partition(call_s=40.0, call_offset=1), "long call"),
    ],
)
def test_a_group_is_told_in_one_word(group: GroupStatus, word: str) -> None:
    assert str(group_state(group)) == word


def test_a_group_shows_each_partition_and_consumer() -> None:
    told = shown(group_view(group_status(partitions=4)))
    assert all(f"P{n} " in told for n in range(4)) and "billing-2#1" in told


def test_the_map_has_one_character_a_partition() -> None:
    group = group_status(partitions=1_024, consumers=8, lag=50)
    text = str(_map.partition_map(group))
    rows = text.strip().splitlines()
    assert len(rows) == 16 and all(len(row) == 6 + _map.COLUMNS for row in rows)
    assert rows[1].startswith("P64") and "·" in rows[0] and "█" in text
    assert _map.cell(group, replace(group.partitions[0], owner=None))[0] == "○"
    assert _map.cell(group, replace(group.partitions[0], problem="x"))[0] == "✗"
    steps = [
        _map.BARS.index(_map.cell(group, replace(group.partitions[0], lag=n))[0])
        for n in (0, 1, 3, 9, 10, 99, 1_000, 10_000, 10**9)
    ]
    assert steps == sorted(steps) and steps[0] == 0 < steps[1] < steps[3]


def test_top_shows_1024_partitions_on_a_screen() -> None:
    group = group_status(partitions=1_024, consumers=24, lag=1)
    told = shown(top.frame(topology_status(group), Rates()))
    assert len(told.splitlines()) < 60 and "billing-15" in told


def test_why_tells_the_chain_of_causes() -> None:
    changes = [
        Change(1, "led", -1, None, 0, 1, 0, "took the lead", 0),
        Change(2, "joined", -1, "a", 1, 0, 0, "join of a#1", 0),
        Change(3, "joined", -1, "b", 1, 0, 0, "join of b#1", 0),
        Change(4, "claim", 3, "a", 1, 1, 0, "join of a#1", 0),
        Change(5, "claim", 4, "b", 1, 1, 0, "join of b#1", 0),
        Change(6, "release", 3, "a", 1, 2, 70, "a#1 died: killed", 0),
    ]
    chain = why.chain_of(3, changes)
    assert [c.version for c in chain] == [1, 2, 4, 6]
    assert "taken from a#1 at offset 70, epoch is now 2, because: a#1 died" in why.change_line(
        chain[-1]
    )
    assert "is owned by billing-0" in why.now_line(group_status(), group_status().partitions[0])


def test_json_holds_what_json_can() -> None:
    message = Message(1, 2, b"k", b"\xff", 3, (("h", b"v"),))
    told = json.loads(json.dumps(_show.plain(message)))
    assert (
        told["key"] == "k" and told["payload"] == "base64:/w==" and told["headers"] == [["h", "v"]]
    )
    assert json.loads(json.dumps(_show.plain(topology_status(group_status()))))


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, "-"), (40, "40 ms"), (3_200, "3.2 s"), (300_000, "5 min"), (9e6, "2.5 h")],
)
def test_spans(ms: float | None, text: str) -> None:
    assert span_text(ms) == text


def test_a_view_is_the_same_in_a_terminal_as_text_and_as_html() -> None:
    head, evil = ("name", "count"), "<b>[red]x[/red]</b>"
    rows = [(Line(evil, Tone.BAD), 1_234), (None, 2)]
    view = View([Line("two rows", Tone.BOLD), Table(head, rows, "title")])
    lines = view.text().splitlines()
    assert [line.split() for line in lines if line.strip(" ─━")] == [
        ["two", "rows"],
        ["title"],
        ["name", "count"],
        [evil, "1,234"],
        ["-", "2"],
    ]
    assert all(line in shown(view) for line in lines) and "\x1b" not in view.text()
    html = view.html()
    assert "<th>name</th><th>count</th>" in html and "<caption>title</caption>" in html
    assert "&lt;b&gt;[red]x" in html and "<b>" not in html and "firebrick" in html
    assert "count" in View([Table(head, [])]).text() and "<th>" in Table(head, []).html()


def test_a_text_is_never_folded() -> None:
    words = "word " * 200
    assert words.strip() in View([Line(words)]).text()
    assert words.strip() in View([Table(("a", "b"), [(words, 1)])]).text()


def test_sizes() -> None:
    assert [size_text(n) for n in (40, 3_200, 7e6, 2e15)] == [
        "40 B",
        "3.2 kB",
        "7.0 MB",
        "2000.0 TB",
    ]


def test_where_to_seek() -> None:
    assert seek.place("start") == "start" and seek.place("17") == 17
    at = seek.place("2026-05-01T12:00")
    assert not isinstance(at, int | str) and at.tzinfo is not None
    assert lag.command.__doc__
