"""The live page in a real browser: a consumer is killed, and the page shows the takeover."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.dashboard.page_state import PageState
from pxrs_ray.dashboard.shown_topology import PageSource
from pxrs_ray.status.places import WAITING, SpreadStep
from tests.cli.browser import chromium
from tests.cli.page_server import WAIT_S, page_of
from tests.cli.pictures import (
    DrawnPage,
    DrawnPages,
    buffer_place,
    buffer_stats,
    group_status,
    topology_status,
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@contextmanager
def served(shop: PageSource | None = None, **others: PageSource) -> Iterator[str]:
    """The page of topologies by their names; its address."""
    with page_of(DrawnPages(**({} if shop is None else {"shop": shop}), **others)) as address:
        yield address


class Drawn(DrawnPage):
    """A topology drawn by hand."""

    def __init__(self, partitions: int, consumers: int) -> None:
        super().__init__()
        away = buffer_place(1, state=WAITING, told="waits for host 10.0.0.2, away for 40 s")
        self.status = topology_status(
            group_status(partitions, consumers, lag=3),
            places=(buffer_place(0), away),
            uneven=(SpreadStep(0, "10.0.0.1", "10.0.0.3"),),
        )

    def look(self) -> PageState:
        return PageState(self.status, {0: buffer_stats()})

    def act(self, action: str, group: str, value: Any) -> str:
        self.done.append((action, group, value))
        return f"{group} has {value} consumers"


def wait(browser: Any, condition: Any) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, WAIT_S, 0.05).until(condition)


def cells(browser: Any, kind: str = "") -> list[Any]:
    found: list[Any] = browser.find_elements("css selector", f".map > div{kind}")
    return found


@pytest.mark.service
@pytest.mark.parametrize(("partitions", "size"), [(16, "large"), (1_024, "small")])
def test_the_map_is_readable_at_every_size(
    browser: Any, partitions: int, size: str, tmp_path: Path
) -> None:
    with served(Drawn(partitions, 12)) as address:
        browser.get(address)
        wait(browser, lambda b: len(cells(b, ".owned")) == partitions)
        assert size in browser.find_element("class name", "map").get_attribute("class")
        widths = {round(cell.size["width"]) for cell in cells(browser)[:64]}
        assert min(widths) >= 12, "every partition can be seen and clicked"
        body = browser.find_element("tag name", "body").size["width"]
        assert browser.execute_script("return document.body.scrollWidth") <= body + 1
        cells(browser)[3].click()
        chosen = browser.find_element("class name", "chosen")
        wait(browser, lambda _: chosen.text.startswith("P3: billing-3 (owned), epoch 1"))
        buffers = browser.find_element("css selector", "#buffers tbody").text
        assert "10.0.0.1 node-0-o disk-0-o at home 9.0 s" in buffers
        assert "waits for host 10.0.0.2, away for 40 s" in buffers
        assert "pxrs move 0 10.0.0.3" in browser.find_element("id", "problems").text
        browser.save_screenshot(str(tmp_path / f"{partitions}.png"))


@pytest.mark.service
def test_actions_are_asked_about_first(browser: Any) -> None:
    drawn = Drawn(16, 3)
    with served(drawn) as address:
        browser.get(address)
        wait(browser, lambda b: len(cells(b, ".owned")) == 16)
        count = browser.find_element("class name", "count")
        count.clear()
        count.send_keys("5")
        scale = browser.find_element("css selector", "[data-action=scale]")
        dialog = browser.find_element("id", "confirm")
        scale.click()
        wait(browser, lambda _: "Scale billing to 5 consumers?" in dialog.text)
        dialog.find_element("css selector", "[value=no]").click()
        wait(browser, lambda _: not dialog.is_displayed())
        assert drawn.done == []
        scale.click()
        dialog.find_element("class name", "yes").click()
        wait(browser, lambda b: b.find_element("id", "done").text == "billing has 5 consumers")
        assert drawn.done == [("scale", "billing", 5)]


def fill(root: Any, selector: str, text: str) -> None:
    field = root.find_element("css selector", selector)
    field.clear()
    field.send_keys(text)


def done(browser: Any) -> str:
    return str(browser.find_element("id", "done").text)


def check_messages_and_a_seek(browser: Any, group: Any) -> None:
    """A message is sent, found by its key, and comes again after a seek whose effect is shown."""
    for number in range(3):
        fill(browser, "#produce [name=key]", f"account-{number}")
        fill(browser, "#produce [name=payload]", f"<i>amount</i> {number}")
        browser.find_element("css selector", "#produce button").click()
        wait(browser, lambda b: "the message is in orders, P" in done(b))
        wait(browser, lambda _, n=number: group.status().lag == 0 and checkpoints(group) == n + 1)
    form = browser.find_element("css selector", "#messages form")
    fill(form, "[name=key]", "account-1")
    form.find_element("css selector", "button").click()
    wait(browser, lambda b: b.find_element("css selector", "#messages .told").text == "1 message")
    row = browser.find_element("css selector", "#messages tbody").text
    assert "account-1" in row and "<i>amount</i> 1" in row
    fill(browser, ".place", "yesterday")
    browser.find_element("css selector", "[data-action=seek]").click()
    wait(browser, lambda b: done(b).startswith("not done: seek to start, end"))
    fill(browser, ".place", "start")
    browser.find_element("css selector", "[data-action=seek]").click()
    dialog = browser.find_element("id", "confirm")
    wait(browser, lambda _: "3 messages come again, 0 are skipped." in dialog.text)
    dialog.find_element("class name", "yes").click()
    wait(browser, lambda b: "8 partitions of billing were moved to start" in done(b))


def check_sorting_and_a_look_at_a_chart(browser: Any) -> None:
    """A click on a head sorts, for pictures that come too; a chart tells what is at the pointer."""
    from selenium.webdriver.common.action_chains import ActionChains

    def members() -> list[str]:
        told = browser.find_element("css selector", ".consumers tbody").text
        return [line.split("#")[0] for line in told.splitlines()]

    head = browser.find_element("xpath", "//table[@class='consumers']//th[text()='consumer']")
    assert members() == ["billing-0", "billing-1", "billing-2"]
    head.click()
    for _ in range(3):
        wait(browser, lambda _: members() == ["billing-2", "billing-1", "billing-0"])
    hues = "return [...document.querySelectorAll('td.owner')].map(e => e.style.cssText)"
    assert len(set(browser.execute_script(hues))) == 3, "colours go along"
    head.click()
    wait(browser, lambda _: members() == ["billing-0", "billing-1", "billing-2"])
    chart = browser.find_element("class name", "lag-chart")
    ActionChains(browser).move_to_element(chart).perform()
    wait(browser, lambda _: "lag " in (chart.get_attribute("data-told") or ""))


def checkpoints(group: Any) -> int:
    return sum(partition.checkpoint for partition in group.status().partitions)


@pytest.mark.service
def test_what_was_given_up_is_shown_and_sent_again_and_the_keyboard_reaches_the_map(
    browser: Any,
) -> None:
    from selenium.webdriver.common.keys import Keys

    drawn = Drawn(16, 3)
    with served(drawn) as address:
        browser.get(address)
        wait(browser, lambda b: len(cells(b, ".owned")) == 16)
        assert browser.find_element("class name", "place").get_attribute("value") == ""
        browser.find_element("css selector", "[data-look=aside]").click()
        wait(browser, lambda b: "ValueError('no')" in b.find_element("class name", "aside").text)
        browser.find_element("xpath", "//button[text()='Send again']").click()
        wait(browser, lambda _: drawn.done == [("retry_letter", "billing", "P1@4")])
        browser.find_element("css selector", ".consumers tbody button").click()
        dialog = browser.find_element("id", "stack")
        wait(browser, lambda _: "in charge: <b>time.sleep(60)</b>" in dialog.text)
        assert dialog.find_element("class name", "ray").get_attribute("href").endswith("/actors/7")
        dialog.find_element("css selector", "form button").click()
        wait(browser, lambda _: not dialog.is_displayed())
        check_sorting_and_a_look_at_a_chart(browser)
        cells(browser)[0].send_keys(Keys.ARROW_RIGHT, "")
        browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        chosen = browser.find_element("class name", "chosen")
        wait(browser, lambda _: chosen.text.startswith("P2: billing-2"))


@pytest.mark.service
@pytest.mark.ray
def test_the_page_shows_a_takeover(browser: Any, tmp_path: Path) -> None:
    import ray

    import pxrs_ray
    from pxrs_ray.cli._page_source import RaySource

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    config = pxrs_ray.PxrsConfig(
        name="page",
        buffers=1,
        data_dir=tmp_path,
        store="memory:",
        queues={"orders": pxrs_ray.QueueConfig(partitions=8)},
    )
    topology = pxrs_ray.deploy(config)
    try:
        group = topology.group("billing", queue="orders")
        group.start(lambda message: None, consumers=2)
        with served(page=RaySource(topology)) as address:
            browser.get(address)
            wait(browser, lambda b: len(cells(b, ".owned")) == 8)
            victim = group.status().consumers[0]
            os.kill(victim.pid or 0, signal.SIGKILL)

            def taken_over(page: Any) -> bool:
                events = page.find_element("class name", "events").text
                rows = page.find_element("css selector", ".consumers tbody").text
                return (
                    f"{victim.member}#{victim.incarnation}" in events
                    and "died" in events
                    and f"{victim.member}#{victim.incarnation + 1} running" in rows
                    and len(cells(page, ".owned")) == 8
                )

            wait(browser, taken_over)
            browser.save_screenshot(str(tmp_path / "takeover.png"))
            check_messages_and_a_seek(browser, group)
    finally:
        topology.shutdown()
        ray.shutdown()
