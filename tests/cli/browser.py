"""A headless Chromium for tests of the live page; skipped where it is missing, unless CI is set."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import skip_or_fail

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1100",
)


@contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """A browser with an empty profile in `folder`, ended afterwards."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        skip_or_fail("chromium and chromedriver are missing: run `make setup` as root")
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = str(browser)
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    page = Chrome(options=options, service=ChromeService(str(driver)))
    try:
        page.set_page_load_timeout(30)
        yield page
    finally:
        page.quit()


@contextmanager
def shown_as(page: Any, theme: str, width: int, height: int = 1_000) -> Iterator[None]:
    """The browser as somebody has it who likes that theme, `light` or `dark`, so wide."""
    scheme = {"name": "prefers-color-scheme", "value": theme}
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
