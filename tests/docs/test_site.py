"""The documentation site as `make docs` has built it: nothing in it leads nowhere, and nothing public is left out."""

import importlib
import re
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "_build" / "html"
GALLERY = ROOT / "docs" / "gallery"
PARTS = ("baselines", "forecasting", "metrics", "networks", "plots", "ray", "report", "streaming")
PUBLIC = ("coverwell", *(f"coverwell.{part}" for part in PARTS))
LOADING = ("src", "srcset", "data")  # attributes whose address a browser fetches by itself
HEADER_LINES = 4  # of an inventory, before its packed part


@dataclass
class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self):
        super().__init__()

    def handle_starttag(self, tag, attrs):
        named = {name: value for name, value in attrs if value}
        self.places |= {named[name] for name in ("id", "name") if name in named}
        if "href" in named:
            (self.loads if tag == "link" else self.links).append(named["href"])
        self.loads += [named[name] for name in LOADING if name in named]


def read(folder):
    """Every page of a site, by its path."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text())
    return pages


def broken(pages):
    """Links and loads within the site whose file, or whose place in a page, is not there."""
    for path, page in pages.items():
        for address in (*page.links, *page.loads):
            target, place = urldefrag(unquote(address))
            if re.match(r"[a-z]+:", target):
                continue
            file = (path.parent / target.partition("?")[0]).resolve() if target else path
            if not file.is_file():
                yield f"{path.name}: {address}"
            elif place and file in pages and place not in pages[file].places:
                yield f"{path.name}: {address} (no such place)"


@pytest.fixture(scope="module")
def pages():
    assert (SITE / "index.html").is_file(), "the site has not been built; run `make docs`"
    return read(SITE.resolve())


@pytest.mark.docs
def test_no_link_of_the_site_is_broken(pages):
    assert len(pages) > 100
    assert list(broken(pages)) == []


@pytest.mark.docs
def test_the_site_loads_nothing_from_elsewhere(pages):
    for path, page in pages.items():
        elsewhere = [address for address in page.loads if re.match(r"(?:https?:)?//", address)]
        assert not elsewhere, f"{path.name} loads {elsewhere}"


@pytest.mark.docs
@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_has_its_entry_in_the_api(package):
    module = importlib.import_module(package)
    packed = (SITE / "objects.inv").read_bytes().split(b"\n", HEADER_LINES)[HEADER_LINES]
    described = {line.split(" ")[0] for line in zlib.decompress(packed).decode().splitlines()}
    for name in module.__all__:
        same_elsewhere = getattr(importlib.import_module("coverwell"), name, None) is getattr(module, name)
        own, short = f"{package}.{name}", f"coverwell.{name}"
        assert own in described or (same_elsewhere and short in described), f"docs/api has no {own}"


@pytest.mark.docs
def test_every_script_of_the_gallery_has_a_page_with_a_picture():
    scripts = sorted(GALLERY.glob("plot_*.py"))
    assert len(scripts) >= 8
    for script in scripts:
        page = SITE / "docs" / "auto_gallery" / f"{script.stem}.html"
        assert f"sphx_glr_{script.stem}_001" in page.read_text(), f"{script.name} has drawn nothing"


@pytest.mark.docs
def test_a_public_name_in_a_guide_leads_to_its_entry_in_the_api():
    guide = (SITE / "docs" / "tables.html").read_text()
    for name in ("coverwell.MLP", "coverwell.plots.draw_box", "coverwell.baselines.DeepEnsembleRegressor"):
        assert f'href="api/generated/{name}.html#{name}"' in guide
    equations = (SITE / "docs" / "paper.html").read_text()
    assert 'href="api/equations.html#coverwell.paper.losses.noise_loss"' in equations


@pytest.mark.docs
def test_names_of_ours_in_the_api_lead_to_their_entries():
    pages = sorted((SITE / "docs" / "api" / "generated").glob("*.html"))
    assert len(pages) > 90
    for page in pages:
        text = re.sub(r"<a .*?</a>", "", page.read_text(), flags=re.DOTALL)
        assert re.findall(r'py-obj[^>]*><span class="pre">(coverwell\.[\w.]+)<', text) == [], page.name


@pytest.mark.docs
def test_small_images_in_the_api_lead_to_their_examples_and_those_of_guides_open_in_full():
    page = (SITE / "docs" / "api" / "generated" / "coverwell.SigmaFit.html").read_text()
    assert "sphx_glr_plot_06_own_matching_thumb.png" in page
    assert 'href="../../../_images/sphx_glr' not in page
    page = (SITE / "docs" / "how-it-works.html").read_text()
    names = re.findall(r'src="\.\./_images/(\w+)\.png"', page)
    assert len(names) >= 5
    assert all(f'href="../_images/{name}.png"' in page for name in names)
    assert "give --decimal ," in (SITE / "docs" / "command-line.html").read_text()  # options keep their dashes


def test_a_broken_link_and_a_missing_place_are_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">a</h1><a href="b.html#here">b</a><a href="b.html#there">b</a><a href="c.html">c</a>'
        '<a href="#top">up</a><a href="https://example.org/d.html">d</a><img src="e%20f.png">'
    )
    (tmp_path / "b.html").write_text('<p id="here">b</p><img src="g.png">')
    (tmp_path / "e f.png").write_bytes(b"")
    assert list(broken(read(tmp_path.resolve()))) == [
        "a.html: b.html#there (no such place)",
        "a.html: c.html",
        "b.html: g.png",
    ]
