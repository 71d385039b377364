"""The packages of the extra, and what is said where one is missing."""

import sys

import pytest
from coverwell.report.library import chart_library, check_library, library_versions


@pytest.mark.parametrize(("module", "package"), [("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")])
def test_a_missing_package_is_told_with_the_extra_that_has_it(monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"reports need {package}; install the extra `report`"):
        check_library()


def test_the_library_is_a_script_that_a_page_can_hold():
    text = chart_library()
    assert len(text) < 1_500_000
    assert "BSD-3-Clause" in text
    for ends in ("</script", "</SCRIPT", "<!--"):
        assert ends not in text


def test_versions_of_what_draws_are_known():
    assert set(library_versions()) == {"vega", "vl-convert-python"}
