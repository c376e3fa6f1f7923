# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Jinja test and filters of qualified names, as a playbook templates them: one real run over the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.fleet.cdi.plugins.filter.split_qualified_name import split_qualified_name

COLLECTIONS = Path(__file__).resolve().parents[4] / "build/pythonpath"
TABLE = yaml.safe_load((Path(__file__).parent / "qualified_names.yml").read_text())

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  vars:
    given: GIVEN
  tasks:
    - ansible.builtin.debug: {msg: "{{ item is fleet.cdi.qualified_name }}"}
      loop: "{{ given }}"
      register: test
    - ansible.builtin.debug: {msg: "{{ item | fleet.cdi.split_qualified_name }}"}
      loop: "{{ given | select('string') | select('fleet.cdi.qualified_name') }}"
      register: split
    - ansible.builtin.debug: {msg: "{{ item.msg.name | fleet.cdi.join_qualified_name(item.msg.kind) }}"}
      loop: "{{ split.results }}"
      register: join
    - ansible.builtin.debug: {msg: "{{ [0, 1] | map('fleet.cdi.join_qualified_name', 'fleet.cdi/gpu') | list }}"}
      register: numbers
    - ansible.builtin.debug: {msg: "{{ 'a b' | fleet.cdi.join_qualified_name('fleet.cdi/gpu') }}"}
      ignore_errors: true
      register: refused
    - ansible.builtin.debug: {msg: "{{ nowhere is fleet.cdi.qualified_name }}"}
      ignore_errors: true
      register: undefined
    - ansible.builtin.copy:
        content: "{{ [test, split, join, numbers, refused, undefined] | to_json }}"
        dest: "{{ playbook_dir }}/said.json"
"""
NAMES = ("test", "split", "join", "numbers", "refused", "undefined")
GIVEN = [*TABLE["names"], *(case["value"] for case in TABLE["none"])]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Task -> its messages, one for each item."""
    folder = tmp_path_factory.mktemp("playbook")
    (folder / "site.yml").write_text(PLAYBOOK.replace("GIVEN", json.dumps(GIVEN)))
    (folder / "ansible.cfg").write_text("[defaults]\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_HOME": str(folder / "home")}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-c", "local", "site.yml"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = dict(zip(NAMES, json.loads((folder / "said.json").read_text())))
    return {name: [item["msg"] for item in result.get("results", [result])] for name, result in results.items()}


def test_it_tells_names_from_what_is_none(said):
    wanted = [True] * len(TABLE["names"]) + [False] * len(TABLE["none"])
    assert list(zip(GIVEN, said["test"])) == list(zip(GIVEN, wanted))


def test_it_takes_names_apart(said):
    assert said["split"] == list(TABLE["names"].values())


@pytest.mark.parametrize("case", TABLE["none"], ids=lambda case: repr(case["value"]))
def test_it_says_why_something_is_no_name(case):
    with pytest.raises(AnsibleFilterError, match="^split_qualified_name: ") as caught:
        split_qualified_name(case["value"])
    assert case["says"] in str(caught.value) and str(caught.value).endswith("]")  # its id, and nothing after it


def test_joined_again_it_is_the_same(said):
    assert said["join"] == list(TABLE["names"])
    assert said["numbers"] == [["fleet.cdi/gpu=0", "fleet.cdi/gpu=1"]]


def test_what_has_no_value_is_an_error(said):
    assert "found the device name 'a b'" in said["refused"][0]
    assert "'nowhere' is undefined" in said["undefined"][0]
