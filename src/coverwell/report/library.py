"""The packages of the extra `report`, and the charting library as text that can stand in a page.

The charts are drawn by Vega-Lite, which the package vl-convert-python carries. Its whole text is below one megabyte; it
draws SVG that prints sharply and follows the page's colours.
"""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["chart_library", "check_library", "library_versions", "needed_jinja"]

EXTRA = 'reports need {}; install the extra `report`: pip install "coverwell[report]"'
# What the page's own script uses of the library.
EXPOSED = "window.vegaEmbed = vegaEmbed;"
LICENCE = (
    "Vega, Vega-Lite, Vega-Embed: Copyright (c) 2015-2026, University of Washington Interactive Data Lab, and their "
    "contributors. BSD-3-Clause licence: redistribution and use in source and binary forms, with or without "
    "modification, are permitted provided that this notice is kept; the software is provided as is, without warranty "
    "of any kind."
)


def needed_jinja() -> Any:
    """The package jinja2; an ImportError that names the extra where it is not there."""
    try:
        import jinja2
    except ImportError:
        raise ImportError(EXTRA.format("jinja2")) from None
    return jinja2


def _needed_converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise ImportError(EXTRA.format("vl-convert-python")) from None
    return vl_convert


def check_library() -> None:
    """Raise before any work unless pages can be made."""
    needed_jinja()
    _needed_converter()


@functools.cache
def chart_library() -> str:
    """The charting library as the text of a script; it takes a few seconds, so once for all pages of a process."""
    bundle: str = _needed_converter().javascript_bundle(EXPOSED)
    # Inside a page, these three would end the script or begin a comment; within strings the backslash changes nothing.
    for ends in ("</script", "</SCRIPT", "<!--"):
        bundle = bundle.replace(ends, ends.replace("<", "\\x3c"))
    return f"/*! {LICENCE} */\n{bundle}"


def library_versions() -> dict[str, str]:
    """The versions of what draws."""
    converter = _needed_converter()
    return {"vega": converter.get_vega_version(), "vl-convert-python": converter.__version__}
