# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.check_report_files."""

from __future__ import annotations

DOCUMENTATION = r"""
name: check_report_files
short_description: Check the files of the controller that the playbooks report and verify are to read and write
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Finds directories that the playbooks can't write to, and old reports that they can't compare with, before a host is
    asked.
options:
  _input:
    description:
      - The variables by name. C(fleet_cdi_report_dir) and C(fleet_cdi_verify_dir) are directories,
        C(fleet_cdi_report_since) is an old report. An empty text stands for none.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Check the directory of the verdicts
  ansible.builtin.assert:
    that: faults == []
    fail_msg: "{{ faults }}"
  vars:
    faults: "{{ {'fleet_cdi_verify_dir': '/srv/verdict'} | fleet.cdi.check_report_files }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The faults, one for each variable. Empty if there are none.
  type: list
  elements: str
  sample:
    - >-
      fleet_cdi_verify_dir: found /srv/verdict, which does not exist; expected a directory of the controller. Make it:
      mkdir -p /srv/verdict [FC1101]
"""

import os
import shlex
from collections.abc import Mapping
from typing import Callable

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.comparison import compare_reports, report_at


def check_report_files(variables: Mapping[str, str]) -> list[str]:
    """Return the faults in variables of playbooks that name files of the controller, one for each variable."""
    found = ((name, CHECKS[name](os.path.expanduser(path))) for name, path in variables.items() if path)
    return [with_id(f"{name}: {fault}") for name, fault in found if fault]


def _output(path: str) -> str:
    """Return why nothing can be written in a directory, and the next step; "" if it can."""
    expected = "expected a directory of the controller"
    shell = shlex.quote(path)
    if not os.path.lexists(path):
        return f"found {path}, which does not exist; {expected}. Make it: mkdir -p {shell}"
    if not os.path.isdir(path):
        return f"found {path}, which is not a directory; {expected}. Name another one"
    if not os.access(path, os.W_OK | os.X_OK):
        user = os.geteuid()
        step = f"Name another one, or give it to this user: chown {user} {shell}"
        return f"found {path}, where user {user} may not write; {expected} where it may. {step}"
    return ""


def _old_report(path: str) -> str:
    """Return why nothing can be compared with an old report, and the next step; "" if it can."""
    try:
        report = report_at(path)
        compare_reports(report, report, path)
    except CdiError as error:
        return f"{error}. Name another file, or leave the variable out"
    return ""


CHECKS: dict[str, Callable[[str], str]] = {
    "fleet_cdi_report_dir": _output,
    "fleet_cdi_verify_dir": _output,
    "fleet_cdi_report_since": _old_report,
}


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"check_report_files": check_report_files}
