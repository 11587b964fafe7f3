"""A headless Chromium for tests of pages, where there is one."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["chromium", "needs_browser", "opened"]

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER and importlib.util.find_spec("selenium")),
    reason="no browser to draw the page: needs chromium, chromedriver (apt-get install chromium "
    "chromium-driver) and selenium",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A driver that keeps the logs of console and network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def opened(driver: Any, file: Path, width: int = 1200) -> Any:
    """`driver` at `file`, on a screen of `width` x 800; below 600 it is a phone."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    driver.get(file.as_uri())
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    return driver
