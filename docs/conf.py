"""Settings of the documentation site; ``make docs`` builds it, with warnings as errors.

The source folder is the whole project, so that a relative link works on the site and in the
repository alike. `docs/index.md` is the only list of pages: the navigation is made from it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

project = "dpstats"
copyright = "the authors of dpstats, Apache-2.0"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "rendered_vignettes",
]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "examples/*.md",
    "docs/**.md",
    "docs/reference/names/*.rst",
    "vignettes/*.md",
]
exclude_patterns = [".*", "build", "dpstats", "tests"]  # these hold no pages
templates_path = [str(Path(__file__).parent / "templates")]
html_theme = "furo"
html_title = "dpstats"
html_copy_source = False

default_role = "literal"  # of `names` in docstrings
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # docstrings state types in words
autodoc_member_order = "bysource"
add_module_names = False
suppress_warnings = ["ref.python"]  # words such as "columns" in types are no references
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_use_param = False  # types are words: nothing to link
napoleon_preprocess_types = False


def plain_marks(app, what, name, obj, options, lines):
    """Keep bars such as those of |F|, and numbers of references, as the text that they are."""
    for i, line in enumerate(lines):
        line = re.sub(r"^(\s*)\.\. \[(\d+)\] ", r"\1*  [\2] ", line)
        lines[i] = re.sub(r"\[(\d+)\]_", r"[\1]", line).replace("|", r"\|")


def navigation(app, page, source):
    """Give the index a hidden table of contents per heading, made from its lists of links."""
    if page != root_doc:
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        heading, text = section.split("\n", 1)
        links = re.findall(r"^- \[(.*?)\]\((.*?)\.md\)", text, re.MULTILINE)
        pages = "\n".join(f"{title} <{target}>" for title, target in links)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{pages}\n```\n"


def front_page(app, error):
    """Lead the address of the site to the index."""
    if error is None and app.builder.name == "html":
        target = '<meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        (Path(app.outdir) / "index.html").write_text(target, encoding="utf-8")


def setup(app):
    """Connect the functions."""
    app.connect("autodoc-process-docstring", plain_marks)
    app.connect("source-read", navigation)
    app.connect("build-finished", front_page)
