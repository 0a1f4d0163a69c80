"""How the live page looks, in both themes, wide and on a telephone, at 16 to 1,024 partitions:
everything is readable, nothing lies over anything else, nothing sticks out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.dashboard.page_state import PageState
from pxrs_ray.status.answers import CallUnderWay, GivenUp, QuarantineSize, TopologyStatus
from pxrs_ray.status.places import WAITING
from tests.cli.browser import chromium, shown_as
from tests.cli.pictures import (
    DrawnPage,
    Missing,
    buffer_place,
    buffer_stats,
    group_status,
    topology_status,
)
from tests.cli.test_live_page import cells, served, wait

pytestmark = pytest.mark.service

WIDE, TELEPHONE = 1_400, 390
TOLD = "#messages .told"
BEYOND = "return arguments[0].scrollWidth - arguments[0].clientWidth"
# What WCAG 2 asks for of text (AA), and of text that is large or only decorates a field.
CONTRAST_MIN, CONTRAST_OF_HINTS_MIN = 4.5, 3.0

LOOKS = (Path(__file__).parent / "page_looks.js").read_text()


def ill(partitions: int) -> TopologyStatus:
    """A group that has a bit of everything that can be wrong."""
    group = group_status(partitions, 12, lag=3)
    first, second, third, *others = group.partitions
    halted = replace(first, problem="ValueError('this amount is negative: -3')", attempts=5)
    hangs = replace(second, call_s=127.0, call_offset=100)
    alone = replace(third, owner=None, phase="unowned")
    busy, silent, *well = group.consumers
    letters = (GivenUp(4, 7, "dead_letter", 5, "ValueError('no')", ago_s=40.0),)
    busy = replace(
        busy,
        calls=(CallUnderWay(1, 100, 127.0),),
        given_up=letters,
        given_up_count=54,
        aside=QuarantineSize(3, 40),
    )
    reason = "silent for 4 s, its lease is 10 s"
    silent = replace(silent, state="silent", reason=reason, processed=None, pid=None)
    group = replace(group, partitions=(halted, hangs, alone, *others))
    group = replace(group, consumers=(busy, silent, *well))
    away = buffer_place(1, state=WAITING, told="waits for host 10.0.0.2, away for 40 s")
    return topology_status(group, places=(buffer_place(0, free_bytes=110_600), away))


class Ill(DrawnPage):
    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions

    def look(self) -> PageState:
        return PageState(ill(self.partitions), {0: buffer_stats()})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize("partitions", [16, 256, 1_024])
def test_everything_is_readable_and_nothing_covers_or_sticks_out(
    browser: Any, partitions: int, tmp_path: Path
) -> None:
    with served(Ill(partitions), other=Missing()) as address:
        for theme in ("light", "dark"):
            for width in (WIDE, TELEPHONE):
                with shown_as(browser, theme, width):
                    browser.get(address)
                    wait(browser, lambda b: len(cells(b)) == partitions)
                    browser.find_element("css selector", "[data-look=aside]").click()
                    wait(browser, lambda b: "('no')" in b.find_element("class name", "aside").text)
                    browser.find_element("css selector", "#messages form button").click()
                    wait(browser, lambda b: b.find_element("css selector", TOLD).text)
                    browser.save_screenshot(str(tmp_path / f"{partitions}-{theme}-{width}.png"))
                    limits = (CONTRAST_MIN, CONTRAST_OF_HINTS_MIN)
                    assert browser.execute_script(LOOKS, *limits) == [], (theme, width)


def test_what_is_wrong_is_told_in_words_beside_its_group(browser: Any) -> None:
    with served(Ill(16)) as address:
        browser.get(address)
        wait(browser, lambda b: len(cells(b)) == 16)
        group = browser.find_element("class name", "group")
        why = group.find_element("class name", "why").text
        for words in (
            "halted at offset 100: ValueError('this amount is negative: -3')",
            "in the same call since 127 s: message 100, attempt 1, by billing-1",
            "silent for 4 s, its lease is 10 s",
            "P2 without an owner",
        ):
            assert words in why
        aside = group.find_element("css selector", "[data-look=aside]").text
        assert aside == "54 given up, 3 keys in quarantine"
        assert "11 of 12 consumers" in group.find_element("class name", "facts").text
        for part in group.find_elements("css selector", ".below > div"):
            assert browser.execute_script(BEYOND, part) <= 0, "all of it is seen without scrolling"
        rows = group.find_element("css selector", ".consumers tbody").text
        assert "in a call: P1 offset 100 for 127 s" in rows and "its lease is 10 s" in rows
        kinds = [cell.get_attribute("class") for cell in cells(browser)[:4]]
        assert kinds == ["problem", "warning", "unowned", "owned"]


def topologies(browser: Any) -> list[tuple[str, str, bool]]:
    """What the page offers: each topology, how it is, and whether it is the one that is shown."""
    return [
        (
            link.find_element("tag name", "span").text,
            link.find_element("tag name", "small").text,
            link.get_attribute("aria-current") == "page",
        )
        for link in browser.find_elements("css selector", "#topologies a")
    ]


def test_one_page_shows_each_topology_at_a_glance_and_its_address_keeps_the_one_it_shows(
    browser: Any,
) -> None:
    class Named(Ill):
        def look(self) -> PageState:
            status = topology_status(group_status(16, 3), topology="other")
            return PageState(status, {0: buffer_stats()})

    other = Named(16)
    with served(Ill(16), other=other, gone=Missing()) as address:
        browser.get(address)
        wanted = [("gone", "no coordinator", False), ("other", "ok", True)]
        wait(browser, lambda b: topologies(b)[:2] == wanted)
        assert topologies(browser)[2][1].endswith("problems")
        browser.find_element("xpath", "//nav//a[contains(., 'gone')]").click()
        trouble = "no such topology runs"
        wait(browser, lambda b: b.find_element("id", "trouble").text == trouble)
        wait(browser, lambda b: topologies(b)[:1] == [("gone", "no coordinator", True)])
        browser.find_element("xpath", "//nav//a[contains(., 'other')]").click()
        wait(browser, lambda b: b.find_element("id", "topology").text == "other")
        assert browser.current_url.endswith("/?topology=other"), "and no token"
        assert topologies(browser)[1] == ("other", "ok", True)
        browser.refresh()
        wait(browser, lambda b: b.find_element("id", "topology").text == "other")
        browser.find_element("css selector", "[data-action=pause]").click()
        browser.find_element("css selector", "#confirm .yes").click()
        wait(browser, lambda _: other.done == [("pause", "billing", None)])
        browser.back()
        wait(browser, lambda b: topologies(b) and topologies(b)[0][2])


def test_one_topology_needs_no_choice_and_its_address_names_it(browser: Any) -> None:
    with served(Ill(16)) as address:
        browser.get(address)
        wait(browser, lambda b: len(cells(b)) == 16)
        assert browser.current_url.endswith("/?topology=shop")
        assert not browser.find_element("id", "topologies").is_displayed()
