# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make docs-site`: README, the guides and the documentation of all modules and plugins as a site.

docs_site.py COPY    where COPY is the collection at .../ansible_collections/fleet/cdi (tests/harness/mirror.py)

antsibull-docs writes the pages of the collection, and Sphinx makes build/docs-site/html of them and of our Markdown.
A warning is a failure. A link that leads to a file that is no page leads to the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = CHECKOUT / "build/docs-site"
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/errors/*.md", "roles/*/README.md")
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
CONF = """\
project = "fleet.cdi"
copyright = "fleet.cdi contributors"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
html_theme = "alabaster"
html_theme_options = {"nosidebar": False, "page_width": "auto"}
myst_heading_anchors = 4
html_title = "fleet.cdi"
highlight_language = "text"

# Labels of Ansible's own documentation that antsibull-docs names.
ANSIBLE = "https://docs.ansible.com/projects/ansible/latest/"
ELSEWHERE = {
    "action_plugins": "plugins/action.html#action-plugins",
    "ansible_configuration_settings": "reference_appendices/config.html#ansible-configuration-settings",
    "callback_plugins": "plugins/callback.html#callback-plugins",
    "common_return_values": "reference_appendices/common_return_values.html#common-return-values",
}


def elsewhere(_app, _environment, node, content):
    target = ELSEWHERE.get(node.get("reftarget"))
    if target:
        from docutils import nodes

        return nodes.reference("", "", content, refuri=ANSIBLE + target)


def setup(app):
    app.connect("missing-reference", elsewhere)
"""
INDEX = """\
fleet.cdi
=========

.. toctree::
   :maxdepth: 1
   :caption: Guides

{guides}

.. toctree::
   :maxdepth: 1
   :caption: Modules, roles and plugins

   collections/index
"""


def pages() -> list[Path]:
    """The Markdown pages, relative to the checkout, README first."""
    return [path.relative_to(CHECKOUT) for pattern in PAGES for path in sorted(CHECKOUT.glob(pattern))]


def outward(page: Path, text: str, site: set[Path], repository: str) -> str:
    """Return the text of a page, with its links to files that the site does not have leading to the repository."""

    def lead(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / found[1]))
        return found[0] if target in site else f"{repository}/blob/main/{target}{found[2] or ''}"

    return LINK.sub(lead, text)


def write_source(source: Path) -> None:
    """Write what Sphinx reads, besides the pages that antsibull-docs writes."""
    repository = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))["repository"]
    found = pages()
    images = [path.relative_to(CHECKOUT) for path in CHECKOUT.glob("docs/images/*")]
    for page in found:
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        text = (CHECKOUT / page).read_text(encoding="utf-8")
        (source / page).write_text(outward(page, text, {*found, *images}, repository), encoding="utf-8")
    for image in images:
        (source / image).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CHECKOUT / image, source / image)
    (source / "conf.py").write_text(CONF, encoding="utf-8")
    guides = "\n".join(f"   {page.with_suffix('')}" for page in found)
    (source / "index.rst").write_text(INDEX.format(guides=guides), encoding="utf-8")


def main(copy: Path) -> int:
    """Make the site; 1 if anything warned."""
    shutil.rmtree(SITE, ignore_errors=True)
    source, html = SITE / "source", SITE / "html"
    source.mkdir(parents=True)
    write_source(source)
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(copy.parents[2])}
    commands = (
        [
            "antsibull-docs",
            "collection",
            "--use-current",
            "--fail-on-error",
            "--dest-dir",
            str(source),
            "fleet.cdi",
        ],
        ["sphinx-build", "-q", "-W", "--keep-going", "-b", "html", str(source), str(html)],
    )
    for command in commands:
        print(f"--- {' '.join(command)}", flush=True)
        if subprocess.run(command, check=False, env=environment, stdin=subprocess.DEVNULL).returncode:
            return 1
    print(f"{html}/index.html", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
