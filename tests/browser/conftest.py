"""A headless Chromium, and reports for it to open; run by `make test-browser` alone.

It needs Chromium and its driver (on Debian: chromium, chromium-driver) and the package selenium. With the variable
COVERWELL_SCREENSHOTS, pictures of all pages go to that folder, to be looked at.
"""

import base64
import json
import math
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from torch import nn

from coverwell import LSTM, MLP, MatchedForecaster, MatchedRegressor
from coverwell.networks.team import LoopTeam
from coverwell.report import Source, write_report, write_series_report

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
ALL_DRAWN = """
return [...document.querySelectorAll('.block:not([hidden]) .canvas')].every(c => c.dataset.drawn === 'done')
"""
SECONDS = 20  # until all charts of a page must be drawn
EVIL = "<script>window.broken = 1</script> & a column whose name is rather long"


class Browser:
    """Chromium without a window."""

    def __init__(self, chromium, driver):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))

    def open(self, path, *, width=800, dark=False):
        """Open a page and wait until its charts are drawn."""
        self.size(width, dark=dark)
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(Path(path).as_uri())
        self.wait()

    def size(self, width, *, dark=False, media=""):
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        shape = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": scheme})

    def wait(self):
        """Wait until all charts are drawn."""
        self.until(ALL_DRAWN)

    def until(self, script):
        """Wait until a script says true."""
        end = time.monotonic() + SECONDS
        while not self.run(script):
            assert time.monotonic() < end, f"never came true: {script}"
            time.sleep(0.05)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def messages(self):
        """What the page said on the console since it was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """The addresses that were asked for since the page was opened."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [
            entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith("data:")]

    def keep_picture(self, name):
        if not os.environ.get("COVERWELL_SCREENSHOTS"):
            return
        width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        folder = Path(os.environ["COVERWELL_SCREENSHOTS"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))

    def pdf(self):
        printed = self.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
        return base64.b64decode(printed["data"])

    def close(self):
        self.driver.quit()


@pytest.fixture(scope="session")
def browser():
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if not chromium or not driver:
        pytest.fail("these tests need chromium and chromedriver; on Debian: apt-get install chromium chromium-driver")
    opened = Browser(chromium, driver)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """A report of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    made = {"table": write_table, "series": write_series, "boxes": write_boxes}
    for name, write in made.items():
        write(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in made}


def write_table(path):
    """Two targets at three levels; one city is badly covered, and a column has a name with HTML in it."""
    rng = np.random.default_rng(0)
    n, n_train = 400, 150
    city = rng.choice(["Rome", "Oslo", "Bern", "Lima"], n)
    frame = pd.DataFrame({EVIL: rng.normal(size=n), "area": rng.uniform(20, 120, n), "city": city})
    frame["listed"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    frame.loc[::9, "area"] = np.nan
    scatter = np.where((city == "Lima") & (np.arange(n) >= n_train), 8.0, 1.0)
    rent = frame["area"].fillna(60) / 10 + scatter * rng.normal(size=n)
    y = pd.DataFrame({"rent": rent, "price": 30 * rent + rng.normal(size=n)})
    regressor = MatchedRegressor(
        [0.5, 0.8, 0.9], network=MLP(hidden=8), max_rounds=3, folds=3, repeats=1, random_state=0
    )
    model = regressor.fit(frame[:n_train], y[:n_train])
    write_report(
        model,
        frame[n_train:],
        y[n_train:],
        path,
        groups={"district": rng.integers(1, 40, n - n_train)},
        title="Rents in four cities, and what the model knows about them",
        source=Source(command="coverwell report model.safetensors test.csv --group district --out report.html"),
    )


def write_series(path):
    rng = np.random.default_rng(1)
    n, n_train = 900, 400
    noise = 0.3 * rng.normal(size=n) * np.where(np.arange(n) > 650, 3, 1)
    index = pd.date_range("2024-01-01", periods=n, freq="h", name="when")
    series = pd.Series(10 + 2 * np.sin(np.arange(n) * 2 * np.pi / 24) + noise, index=index, name="load (MW)")
    forecaster = MatchedForecaster(
        coverage=[0.8, 0.95], past=24, horizon=3, network=LSTM(hidden=8), max_rounds=1, folds=2, random_state=0
    )
    write_series_report(forecaster.fit(series[:n_train]), series, path)


@dataclass(frozen=True)
class Small:
    """A network for pictures that is far faster than a ResNet-18."""

    usual: ClassVar[dict[str, float]] = {"mean_epochs": 10, "interval_epochs": 10, "max_rounds": 3, "repeats": 1}

    size: int = 64
    mirror: str | None = None
    cache: str | None = None

    def trunk(self):
        return nn.AvgPool2d(8)

    def build(self, n_members, input_shape, n_outputs):
        n_inputs = math.prod(input_shape)
        members = [
            nn.Sequential(nn.Flatten(), nn.Linear(n_inputs, 64), nn.ReLU(), nn.Linear(64, n_outputs))
            for _ in range(n_members)
        ]
        return LoopTeam(members, n_outputs)


def write_boxes(path):
    rng = np.random.default_rng(0)
    images, boxes = rng.integers(40, 120, (160, 3, 64, 64), dtype=np.uint8), np.empty((160, 4))
    for image, box in zip(images, boxes, strict=True):
        left, top, width, height = rng.integers(8, 30, 4)
        image[:, top : top + height, left : left + width] = rng.integers(170, 256, (3, 1, 1))
        box[:] = np.array([left, top, width, height]) / 64
    regressor = MatchedRegressor([0.5, 0.9], network=Small(), folds=2, device="cpu", random_state=0)
    model = regressor.fit(images[:120], boxes[:120])
    write_report(model, images[120:], boxes[120:], path, boxes=True)
