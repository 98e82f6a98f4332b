"""A Chromium without a window, and the screens and themes that it shows pages with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def open_browser() -> Iterator[Any]:
    """Open a Chromium with the driver of the same distribution; skip where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no chromium with its driver here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(each)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as opened:
        opened.set_page_load_timeout(40)
        opened.set_script_timeout(40)
        yield opened


def show(browser: Any, url: str, *, width: int, theme: str = "light") -> None:
    """Load a page in a window of this width; `theme`: light or dark."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(url)
