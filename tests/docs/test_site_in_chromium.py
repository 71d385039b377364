"""The pages of the site in headless Chromium, on a phone, a tablet and a large screen."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
WIDTHS = (360, 800, 1600)  # pixels
START, END = "RESULT[", "]RESULT"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"),
    *("--allow-file-access-from-files", "--virtual-time-budget=900000"),
    "--disable-web-security",  # or this page could not look into the frames
)
# Opens each page in a frame of each width, and writes down those that are wider than it or lack a picture.
INSPECTOR = """<body><pre></pre><script>
async function main(pages, widths) {
  const found = [];
  for (const width of widths) for (const page of pages) {
    const frame = document.createElement("iframe");
    frame.style = `width: ${width}px; height: 800px; border: 0`;
    await new Promise(loaded => { frame.onload = loaded; frame.src = page; document.body.append(frame); });
    const inside = frame.contentDocument;
    const needed = inside.documentElement.scrollWidth;
    const lost = [...inside.images].filter(image => image.loading != "lazy" && !image.naturalWidth).length;
    if (needed > width + 1 || lost) found.push(`${page} at ${width}: ${needed} pixels wide, ${lost} pictures lost`);
    frame.remove();
  }
  document.querySelector("pre").textContent = "START" + JSON.stringify(found) + "END";
}
main(PAGES, WIDTHS);
</script></body>"""


def inspected(pages, folder):
    """What is wrong with the pages, in words."""
    addresses = json.dumps([page.resolve().as_uri() for page in pages])
    text = INSPECTOR.replace("PAGES", addresses).replace("WIDTHS", json.dumps(WIDTHS))
    inspector = folder / "inspector.html"
    inspector.write_text(text.replace("START", START).replace("END", END))
    command = ["chromium", *FLAGS, f"--user-data-dir={folder / 'profile'}", inspector.as_uri()]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    result = printed.partition("<pre>")[2].partition("</pre>")[0]
    assert result.startswith(START), "the page that looks at the others has not come to its end"
    return json.loads(result.removeprefix(START).removesuffix(END))


@pytest.fixture
def chromium():
    assert shutil.which("chromium"), "this test needs Chromium, which `make docs` installs"


@pytest.mark.docs
def test_no_page_is_wider_than_its_screen_and_every_picture_is_there(chromium, tmp_path):
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 100, "the site has not been built; run `make docs`"
    assert inspected(pages, tmp_path) == []


@pytest.mark.docs
def test_a_page_that_is_too_wide_and_a_lost_picture_are_noticed(chromium, tmp_path):
    (tmp_path / "good.html").write_text("<p>short</p>")
    (tmp_path / "wide.html").write_text('<div style="width: 900px">wide</div>')
    (tmp_path / "lost.html").write_text('<img src="nowhere.png" alt="">')
    found = inspected([tmp_path / name for name in ("good.html", "wide.html", "lost.html")], tmp_path)
    names = [line.partition(".html at ")[0].rpartition("/")[2] for line in found]
    assert names == ["wide", "lost", "wide", "lost", "lost"]
