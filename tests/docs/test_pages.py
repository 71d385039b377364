"""Pages that quote what code prints: the numbers are those that it prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from coverwell import metrics

ROOT = Path(__file__).parents[2]
COVERAGE, MONITORING, START = (ROOT / "docs" / f"{name}.md" for name in ("coverage", "monitoring", "start"))
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:```text\n(?P<shown>.*?)^```)?", re.MULTILINE | re.DOTALL)
BAND = re.compile(r"^\| (\d+) \| ([\d.]+) to ([\d.]+) \|$", re.MULTILINE)


@pytest.mark.parametrize("page", [COVERAGE, MONITORING], ids=lambda page: page.name)
def test_the_page_shows_what_its_code_prints(page):
    namespace, n_shown = {}, 0
    for block in BLOCK.finditer(page.read_text()):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block["code"], namespace)
        if block["shown"] is not None:
            n_shown += 1
            assert printed.getvalue() == block["shown"]
    assert n_shown == 2


def test_the_bands_on_the_page_on_coverage_are_those_of_the_metric():
    rows = BAND.findall(COVERAGE.read_text())
    assert len(rows) == 4
    for n_new, *band in rows:
        right = metrics.coverage_band(0.9, n_test=int(n_new), n_train=500)
        assert [f"{bound:.3f}" for bound in right] == band, f"{n_new} rows"


def test_the_first_page_shows_what_the_readme_does():
    (shown,) = re.findall(r"^```text\n(.*?)^```", START.read_text(), re.MULTILINE | re.DOTALL)
    assert "interval score" in shown
    assert shown in (ROOT / "README.md").read_text()  # whose blocks are run by tests/test_shell_blocks.py
