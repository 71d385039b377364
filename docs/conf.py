"""How the documentation site is built: `make docs`.

The source folder of the site is the repository, so that links between the README, the pages in docs/ and the stored
results are the same on the site and in a repository browser. What belongs to the site stands in `include_patterns`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from coverwell import __version__

HERE = Path(__file__).parent
EXAMPLES, PAGES_OF_EXAMPLES = "docs/gallery", "docs/auto_gallery"

os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "coverwell"
author = "The coverwell developers"
project_copyright = "The coverwell developers, Apache-2.0"
version = release = __version__
root_doc = "docs/index"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**",
    "reproduction/*.md",
    "benchmarks/results/*.md",
]
exclude_patterns = ["docs/_build", "docs/gallery", "docs/templates", "docs/**/sg_execution_times.rst"]
templates_path = [str(HERE / "templates")]  # autosummary would look for it beside the README
nitpicky = True
# Single backticks in docstrings are a link where the name has a page, else code: see `_as_code`.
default_role = "py:obj"

myst_heading_anchors = 4  # links such as tables.md#calibration

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections name the types, in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the template of a class lists them
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": [str(HERE / "gallery")],
    "gallery_dirs": [str(HERE / "auto_gallery")],
    "backreferences_dir": PAGES_OF_EXAMPLES + "/uses",
    "doc_module": ("coverwell",),
    "reference_url": {"coverwell": None},
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "min_reported_time": 1000,  # times of a busy machine say nothing to a reader
    "capture_repr": (),  # what is printed is shown, not what the last line returns
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
}
suppress_warnings = ["config.cache"]  # the settings above hold what cannot be pickled; it costs a little time

html_theme = "furo"
html_title = f"coverwell {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["site_root"]  # index.html, which leads to docs/index.html
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def setup(app: Any) -> None:
    app.connect("source-read", _link_to_pages_of_examples)
    app.connect("missing-reference", _as_code)


def _link_to_pages_of_examples(app: Any, docname: str, source: list[str]) -> None:
    """Links to scripts of the gallery, which a repository browser shows, lead to their pages on the site."""
    text = source[0].replace("](gallery/GALLERY_HEADER.rst)", "](auto_gallery/index.rst)")
    source[0] = re.sub(r"(\]\((?:docs/)?)gallery/(\w+)\.py\)", r"\1auto_gallery/\2.rst)", text)


def _as_code(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """A name in single backticks that has no page is code, not a broken link; explicit roles are checked."""
    return contnode if node.get("reftype") == "obj" else None
