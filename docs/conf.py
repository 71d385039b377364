"""How the documentation site is built: `make docs`.

The source folder of the site is the repository, so that links between the README, the pages in docs/ and the stored
results are the same on the site and in a repository browser. `include_patterns` lists what belongs to the site.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from coverwell import __version__

HERE = Path(__file__).parent
PAGES_OF_EXAMPLES, PAGES_OF_API = "docs/auto_gallery", "docs/api/"

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
templates_path = [str(HERE / "templates")]  # autosummary would look for it next to the README
nitpicky = True
# Single backticks in docstrings are a link where the name has a page, else code: see `_as_code`.
default_role = "py:obj"
smartquotes_action = "qe"  # quotes and ellipses; dashes stay, since options begin with two of them

myst_heading_anchors = 4  # for links like tables.md#calibration

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
    "parallel": 2,
    "min_reported_time": 1000,  # times of a busy machine say nothing to a reader
    "write_computation_times": False,
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
    app.connect("doctree-read", _open_in_full)
    app.connect("doctree-read", _keep_with_its_number)
    app.connect("autodoc-process-docstring", _without_the_docstring_of_str)
    app.connect("missing-reference", _as_code)
    app.add_post_transform(LinksToTheAPI)


def _link_to_pages_of_examples(app: Any, docname: str, source: list[str]) -> None:
    """Links to gallery scripts, which a repository browser shows, lead to their pages on the site."""
    text = source[0].replace("](gallery/GALLERY_HEADER.rst)", "](auto_gallery/index.rst)")
    source[0] = re.sub(r"(\]\((?:docs/)?)gallery/(\w+)\.py\)", r"\1auto_gallery/\2.rst)", text)


def _as_code(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """A name in single backticks that has no page is code, not a broken link; explicit roles are checked."""
    return contnode if node.get("reftype") == "obj" else None


def _open_in_full(app: Any, doctree: nodes.document) -> None:
    """Images fill the column and link to their file: on a phone their labels are small."""
    if app.env.docname.startswith((PAGES_OF_EXAMPLES, PAGES_OF_API)):  # their thumbnails link to examples
        return
    for image in doctree.findall(nodes.image):
        image.setdefault("width", "100%")


def _keep_with_its_number(app: Any, doctree: nodes.document) -> None:
    """A line does not break between a number and its per cent sign."""
    for text in list(doctree.findall(nodes.Text)):
        if re.search(r"\d %", text) and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            text.parent.replace(text, nodes.Text(re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)))


def _without_the_docstring_of_str(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Drop a constant's inherited docstring, that of its type; the pages describe it."""
    if what == "data":
        lines.clear()


class LinksToTheAPI(SphinxPostTransform):
    """The first mention of a public name in a guide, for example `MLP(hidden=64)`, links to its entry in the API."""

    default_priority = 400
    formats = ("html",)
    kinds = ("class", "function", "exception")

    def run(self, **kwargs: Any) -> None:
        docname = self.env.docname
        if docname.startswith((PAGES_OF_EXAMPLES, PAGES_OF_API)):
            return
        entries, linked = self._entries(), set()
        for literal in list(self.document.findall(nodes.literal)):
            entry = entries.get(_name_in(literal.astext()))
            if entry is None or entry.node_id in linked or isinstance(literal.parent, nodes.reference | nodes.title):
                continue
            linked.add(entry.node_id)
            link = make_refnode(self.app.builder, docname, entry.docname, entry.node_id, literal.deepcopy())
            literal.replace_self(link)

    def _entries(self) -> dict[str, Any]:
        """Entries of the API by the names that guides use: in full, without the package, and by the last part alone."""
        entries: dict[str, Any] = {}
        for name, entry in self.env.domains.python_domain.objects.items():
            if entry.objtype in self.kinds and not entry.aliased:
                short = name.removeprefix("coverwell.")
                spelled = [name, short if "." in short else "", _alone(short)]
                entries |= {word: entry for word in spelled if word and word not in entries}
        return entries


def _name_in(code: str) -> str:
    """`MLP` of `MLP(hidden=64)`, nothing of code that is no name or call."""
    found = re.fullmatch(r"([A-Za-z][\w.]*)(\(.*\))?", code, re.DOTALL)
    return found[1] if found else ""


def _alone(name: str) -> str:
    """The last part of a name where it can hardly mean anything else: `draw_box` and `MLP`, not `load` or `Dataset`."""
    module, _, last = name.rpartition(".")
    n_capitals = sum(letter.isupper() for letter in last)
    return last if "_" in last or n_capitals > 1 or (n_capitals and not module) else ""
