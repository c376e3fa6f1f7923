# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages whose commands are run (tests/harness/page.py): what is run, what is compared, and what a page may not have."""

from __future__ import annotations

import os

import page  # tests/harness
import pytest
import yaml

# A page in which a fence is ~~~. It does what it says, or `error` is in the message.
CASES = yaml.safe_load(r"""
- name: a command and its output
  page: "~~~console\n# echo a\na\n~~~\n"
- name: an ordinary user's prompt, and a command without output
  page: "~~~console\n$ true\n$ echo a\na\n~~~\n"
- name: one shell for all blocks
  page: "~~~console\n# a=1; cd /\n~~~\ntext\n~~~console\n# echo $a $PWD\n1 /\n~~~\n"
- name: any text in a line, and any lines
  page: "~~~console\n# printf 'one 17 two\\nthree\\nfour\\nend\\n'\none ... two\n...\nend\n~~~\n"
- name: lines that may be none
  page: "~~~console\n# echo a\n...\na\n...\n~~~\n"
- name: a command in several lines
  page: "~~~console\n# echo a \\\n    b\na b\n~~~\n"
- name: a message on standard error, and a status that is not 0
  page: "~~~console\n# ls /none\nls: cannot access '/none': ...\n# echo a\na\n~~~\n"
- name: output without a newline at its end
  page: "~~~console\n# printf a\na\n~~~\n"
- name: a file that the reader saves
  page: "<!-- file: a.yml -->\n~~~yaml\na: 1\n~~~\n~~~console\n# cat a.yml\na: 1\n~~~\n"
- name: a file that is saved further down
  page: "~~~console\n# cat a.yml\na: 1\n~~~\n<!-- file: a.yml -->\n~~~yaml\na: 1\n~~~\n"
- name: a block that is not run
  page: "<!-- not run: needs a second host -->\n~~~console\n# exit 1\n~~~\n~~~console\n# true\n~~~\n"
- name: a block in a list
  page: "- so:\n\n  ~~~console\n  # echo a\n  a\n  ~~~\n"
- name: what this machine has for the page's name, and back
  page: "~~~console\n# echo /dev/ttyUSB0\n/dev/ttyUSB0\n# test /dev/ttyUSB0 = /dev/null || echo not replaced\n~~~\n"
- name: other output
  page: "~~~console\n# echo a\nb\n~~~\n"
  error: "page.md:2: echo a\n--- found\na\n--- expected\nb"
- name: more output
  page: "text\n\n~~~console\n# printf 'a\\nb\\n'\na\n~~~\n"
  error: "page.md:4: "
- name: output where none is shown
  page: "~~~console\n# echo a\n# true\n~~~\n"
  error: "page.md:2: echo a"
- name: less output
  page: "~~~console\n# echo a\na\nb\n~~~\n"
  error: "page.md:2: "
- name: dots are no pattern
  page: "~~~console\n# echo axb\na.b\n~~~\n"
  error: "page.md:2: "
- name: the first command that differs
  page: "~~~console\n# true\n# echo a\nb\n# echo c\nd\n~~~\n"
  error: "page.md:3: echo a"
- name: a shell that ends
  page: "~~~console\n# echo a\na\n# exit\n# echo b\nb\n~~~\n"
  error: "page.md:4: the shell ended here"
- name: a block that nothing runs
  page: "~~~yaml\na: 1\n~~~\n"
  error: "page.md:1: nothing runs this block of yaml; expected console, or a line above it: <!-- file: NAME -->"
- name: a block without a language
  page: "~~~\na\n~~~\n"
  error: "page.md:1: nothing runs this block of no language"
- name: a block without a fence
  page: "text\n\n    # true\n"
  error: "page.md:3: found a block that is indented; expected it between two fences"
- name: no block, but text that goes on
  page: "- so\n    and so\n\n~~~console\n# true\n~~~\n"
- name: no closing fence
  page: "a\n~~~console\n# true\n"
  error: "page.md:2: the block has no closing fence; expected a line ~~~"
- name: output first
  page: "~~~console\na\n# true\n~~~\n"
  error: "page.md:2: found 'a' first in a console block"
- name: no command
  page: "~~~console\n~~~\n"
  error: "page.md:1: the console block has no command"
- name: no reason
  page: "<!-- not run: -->\n~~~text\na\n~~~\n"
  error: "page.md:1: not run: found nothing; expected the reason"
- name: a file in another directory
  page: "<!-- file: ../a -->\n~~~text\na\n~~~\n"
  error: "page.md:1: file: found '../a'; expected a name without a directory"
- name: a mark far from its block
  page: "<!-- not run: why -->\n\n~~~text\na\n~~~\n"
  error: "page.md:1: found mark 'not run' above no fence"
- name: a mark at the end
  page: "<!-- not run: why -->\n"
  error: "page.md:1: found mark 'not run' above no fence"
- name: no block at all
  page: "text\n"
  error: "page.md: no command"
""")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_page(case, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(case["page"].replace("~~~", "```") if "closing" not in case["name"] else case["page"])
    directory = tmp_path / "run"
    directory.mkdir()
    replace = {"/dev/ttyUSB0": "/dev/null"}

    def run():
        return page.run(path, directory, {"PATH": os.environ["PATH"], "LC_ALL": "C"}, replace)

    if "error" not in case:
        assert run() > 0
        return
    with pytest.raises(page.PageError) as caught:
        run()
    assert case["error"] in str(caught.value)
