"""Reports as a reader meets them: in Chromium, narrow and wide, light and dark, by keyboard and on paper.

`make test-browser` runs these tests. They need Chromium and its driver (on Debian: chromium, chromium-driver) and the
package selenium.
"""

import base64
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.report import Source, write_report, write_series_report

pytestmark = pytest.mark.browser

KINDS = ("table", "series", "boxes", "classes")
WIDTHS = (360, 800, 1600)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
ALL_DRAWN = """
return [...document.querySelectorAll('.block:not([hidden]) .canvas')].every(c => c.dataset.drawn === 'done')
"""
SECONDS = 20  # until all charts of a page must be drawn
EVIL = "<script>window.broken = 1</script> & a column whose name is rather long"

# Elements whose own text is wider or higher than the room they have; tables scroll in a frame of their own.
CUT_OFF = """
const hasText = e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
const isHigh = e => getComputedStyle(e).overflowY !== 'visible' && e.scrollHeight > e.clientHeight + 1;
const isCut = e => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1 || isHigh(e);
return [...document.querySelectorAll('body *')].filter(e => e.offsetParent && hasText(e) && isCut(e) &&
  !e.closest('.scroll, .skip, .shown-now, svg, option, select') && getComputedStyle(e).display !== 'inline')
  .map(e => e.outerHTML.slice(0, 200));
"""
OPEN_NUMBERS = "document.querySelectorAll('.block:not([hidden]) details').forEach(details => { details.open = true; })"
ALL_OPENED = "return [...document.querySelectorAll('details[open]')].every(details => details.querySelector('table'))"
# Texts of charts that reach beyond their chart.
CUT_OFF_IN_CHARTS = """
const beyond = (box, room) => box.left < room.left - 2 || box.right > room.right + 2 ||
  box.top < room.top - 2 || box.bottom > room.bottom + 2;
return [...document.querySelectorAll('.block:not([hidden]) svg')].flatMap(svg => [...svg.querySelectorAll('text')]
  .filter(t => t.textContent && getComputedStyle(t).opacity !== '0')
  .filter(t => beyond(t.getBoundingClientRect(), svg.getBoundingClientRect())).map(t => t.textContent));
"""
CONTRAST = """
const light = c => c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const rgb = text => text.match(/[0-9.]+/g).slice(0, 3).map(Number);
const paper = light(rgb(getComputedStyle(document.body).backgroundColor));
return Math.min(...[...document.querySelectorAll('p, td, th, dt, dd, li, a, figcaption, h1, h2, caption')]
  .filter(e => e.offsetParent).map(e => light(rgb(getComputedStyle(e).color)))
  .map(ink => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)));
"""
VISIBLE = "return [...document.querySelectorAll(arguments[0])].filter(e => e.offsetParent).map(e => e.innerText)"


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
        self.until(ALL_DRAWN)

    def size(self, width, *, dark=False, media=""):
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        shape = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": scheme})

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
def pages(tmp_path_factory, forecaster, series, image_model, classifier, graded):
    """A report of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    made = {kind: folder / f"{kind}.html" for kind in KINDS}
    write_table(made["table"])
    write_series_report(forecaster, series, made["series"])
    write_report(*image_model([0.5, 0.9]), made["boxes"], boxes=True)
    rows = graded(200, seed=1)
    write_report(classifier, rows.drop("grade"), rows["grade"].to_numpy(), made["classes"])
    return made


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
        [0.5, 0.8, 0.9], network=MLP(hidden=8), schedule=Schedule(max_rounds=3), folds=3, repeats=1, random_state=0
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


def choose(browser, key, times=1, *, up=False):
    """Go to a control by keyboard alone, and down or up in it."""
    from selenium.webdriver.common.keys import Keys

    control = browser.driver.find_element("id", f"choose-{key}")
    browser.run("arguments[0].focus()", control)
    control.send_keys((Keys.ARROW_UP if up else Keys.ARROW_DOWN) * times)
    browser.until(ALL_DRAWN)


def check_fits(browser, width):
    """Nothing is cut off, and nothing runs over the side."""
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(
        "const all = document.querySelector('#reached .scroll'); return all.scrollWidth <= all.clientWidth"
    )
    assert browser.run(CUT_OFF) == []
    assert browser.run(CUT_OFF_IN_CHARTS) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_loads_without_messages_and_asks_for_nothing_else(browser, pages, kind):
    browser.open(pages[kind])
    assert browser.messages() == []
    assert browser.requests() == [pages[kind].as_uri()]
    assert browser.run("return document.querySelectorAll('.canvas svg').length") >= 6


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_cut_off_and_nothing_runs_over_the_side(browser, pages, kind, width, dark):
    browser.open(pages[kind], width=width, dark=dark)
    check_fits(browser, width)
    assert browser.run(CONTRAST) >= 4.5
    browser.run(OPEN_NUMBERS)
    browser.until(ALL_OPENED)
    check_fits(browser, width)


def test_the_badly_covered_city_is_named_first(browser, pages):
    browser.open(pages["table"])
    worst, slabs = browser.run(VISIBLE, "#worst .text p")
    assert worst.startswith("Worst: city: Lima.")
    assert slabs.startswith("All columns at once:")
    assert browser.run("return document.querySelector('#choose-column').selectedOptions[0].textContent") == "city"
    first = browser.run(
        "return document.querySelector('#worst .block:not([hidden]) svg .mark-text.role-mark text').textContent"
    )
    assert first.startswith("city: Lima")


def test_the_level_and_the_target_are_chosen_by_keyboard(browser, pages):
    browser.open(pages["table"])
    before = browser.run(VISIBLE, "#reached dd")
    assert before[0].replace("\u00a0", " ") == "90 %"
    choose(browser, "target")
    assert "interval of price" in browser.run(VISIBLE, "#reached .text p")[0]
    choose(browser, "level", 2, up=True)
    assert browser.run(VISIBLE, "#reached dd")[0].replace("\u00a0", " ") == "50 %"
    status = browser.run("return document.querySelector('[role=status]').textContent").replace("\u00a0", " ")
    assert status.startswith("Shown: target price; level 50 %; feature or group ")
    assert browser.messages() == []


def test_another_feature_shows_its_own_slices(browser, pages):
    browser.open(pages["table"])
    browser.run("document.getElementById('choose-column').value = '0'")
    choose(browser, "column")
    name = browser.run("return document.querySelector('#choose-column').selectedOptions[0].textContent")
    (caption,) = browser.run(VISIBLE, "#slices figcaption")
    assert caption.startswith(f"Coverage by {name}, for rent at 90")
    assert browser.run("return window.broken === undefined")  # a name with HTML in it stays text
    options = browser.run("return [...document.querySelectorAll('#choose-column option')].map(o => o.textContent)")
    assert any("<script>" in option for option in options)


def test_another_level_shows_its_own_sets(browser, pages):
    places = [f"#{key} figcaption, #{key} caption" for key in ("sizes", "confusion", "examples")]
    browser.open(pages["classes"])
    at_first = [browser.run(VISIBLE, place) for place in places]
    assert "90" in at_first[1][0]
    choose(browser, "level", up=True)
    chosen = [browser.run(VISIBLE, place) for place in places]
    assert "50" in chosen[1][0]
    assert all(before != now and len(before) == len(now) for before, now in zip(at_first, chosen, strict=True))
    names = browser.run(
        "return [...document.querySelectorAll('#confusion .block:not([hidden]) svg .role-axis-label text')]"
        ".map(t => t.textContent.split(' (')[0])"
    )
    assert names[:4] == ["poor", "fair", "good", "> 1"]  # as they are ordered
    assert names[4:] == ["poor", "fair", "good"]
    assert browser.messages() == []


def test_a_series_shows_another_stretch_and_step(browser, pages):
    browser.open(pages["series"])
    assert browser.run(VISIBLE, "#bands figcaption")[0].startswith("The worst stretch")
    choose(browser, "stretch", 2)
    assert browser.run(VISIBLE, "#bands figcaption")[0].startswith("The end")
    before = browser.run(VISIBLE, "#reached dd")
    choose(browser, "target")
    assert browser.run(VISIBLE, "#reached dd") != before


def test_hovering_over_a_mark_shows_its_numbers(browser, pages):
    from selenium.webdriver import ActionChains

    browser.open(pages["table"])
    marks = browser.driver.find_elements("css selector", "#worst .block:not([hidden]) .mark-symbol path")
    mark = min(marks, key=lambda mark: mark.location["y"])
    browser.run("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(browser.driver).move_to_element(mark).perform()
    text = browser.run("return document.getElementById('vg-tooltip-element').innerText")
    assert "city: Lima" in text
    assert "coverage" in text


def test_a_chart_is_opened_in_numbers_by_keyboard(browser, pages):
    from selenium.webdriver.common.keys import Keys

    browser.open(pages["table"])
    opener = browser.driver.find_element("css selector", "#slices .block:not([hidden]) summary")
    browser.run("arguments[0].focus()", opener)
    opener.send_keys(Keys.ENTER)
    browser.until("return document.querySelector('#slices .block:not([hidden]) details table') !== null")
    names = browser.run(VISIBLE, "#slices .block:not([hidden]) td:first-child")
    drawn = browser.run(
        "return [...document.querySelectorAll('#slices .block:not([hidden]) svg .mark-text.role-mark text')]"
        ".map(t => t.textContent)"
    )
    assert names == drawn
    assert any(name.startswith("city: Lima") for name in names)
    heads = browser.run(VISIBLE, "#slices .block:not([hidden]) th")
    assert " ".join(heads).replace("\u00a0", " ") == "slice coverage 95 % interval from to by chance"
    assert browser.messages() == []


def test_the_switch_changes_the_colours_of_page_and_charts(browser, pages):
    browser.open(pages["table"])
    colours = (
        "return [getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('#widths .mark-symbol path')).fill]"
    )
    light = browser.run(colours)
    browser.driver.find_element("id", "theme").click()
    dark = browser.run(colours)
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(20, 24, 28)"
    assert light[1] != dark[1]
    assert browser.driver.find_element("id", "theme").text == "Light colours"


def test_every_control_has_a_name_and_every_chart_a_description(browser, pages):
    browser.open(pages["table"])
    assert browser.run("return [...document.querySelectorAll('select')].every(s => s.labels.length === 1)")
    assert browser.run("return [...document.querySelectorAll('.canvas')].every(c => c.getAttribute('aria-label'))")
    ids = browser.run("return [...document.querySelectorAll('main [id], form [id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    browser.run(OPEN_NUMBERS)
    browser.until(ALL_OPENED)
    unnamed = (
        "return [...document.querySelectorAll('.scroll')].filter(frame => !frame.getAttribute('aria-label')).length"
    )
    assert browser.run(unnamed) == 0
    without_role = "return document.querySelectorAll('table:not([role]), tr:not([role]), td:not([role])').length"
    assert browser.run(without_role) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_print_is_on_white_without_controls_and_says_what_is_shown(browser, pages, kind):
    browser.open(pages[kind], dark=True)
    content = browser.pdf()
    assert content.startswith(b"%PDF")
    assert 1 < len(re.findall(rb"/Type\s*/Page\b", content)) < 30
    browser.size(800, dark=True, media="print")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run(VISIBLE, "select, button, nav") == []
    (shown,) = browser.run(VISIBLE, ".shown-now")
    assert shown.startswith("Shown: ")
    browser.size(800)
