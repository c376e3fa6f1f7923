# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.fleet_report."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_report
short_description: Make the report of a fleet from the truths of its hosts
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Joins the results of M(fleet.cdi.host_report_info) of many hosts. Playbook C(fleet.cdi.report) calls it.
  - A host that could not be reached, or gave no whole answer, is in the report as unknown, with the reason.
options:
  _input:
    description:
      - C(hostvars). Each host has the result in C(result), and may have its rack in C(fleet_cdi_rack). Without that
        variable, the rack is the first group of the host whose name begins with C(rack).
    type: dict
    required: true
  _hosts:
    description:
      - The names of the hosts.
    type: list
    elements: str
    required: true
  result:
    description:
      - The variable with the result of the module.
    type: str
    required: true
  title:
    description:
      - The title of the report.
    type: str
    default: ''
  link:
    description:
      - An address of the site's dashboard, with V({host}), V({device}), V({serial}) or V({uuid}) in it. It has to begin
        with V(https://) or V(http://).
    type: str
    default: ''
  since:
    description:
      - The path of an older C(report.json) to compare with.
    type: str
    default: ''
positional: _hosts
"""

EXAMPLES = r"""
- name: Write the report
  ansible.builtin.copy:
    content: "{{ (hostvars | fleet.cdi.fleet_report(ansible_play_hosts_all, result='truth')).json }}"
    dest: report.json
    mode: "0640"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
_value:
  description: The report in several forms.
  type: dict
  contains:
    html:
      description: The report as one file for a browser.
      type: str
    json:
      description: The report for programs; C(since) reads it.
      type: str
    csv:
      description: One line for each device.
      type: str
    summary:
      description: The causes, those of most hosts first, as lines of text.
      type: list
      elements: str
"""

import json
import os
import time
from functools import partial
from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils.on_host import release
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.comparison import compare_reports, report_at
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.cross_check import cross_checked
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.device_table import csv_text
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import fleet_report as report_of
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import order
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import answers_of
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.page import page
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.summary import summary
from ansible_collections.fleet.cdi.plugins.plugin_utils.settings import wants_devices


def fleet_report(
    hostvars: Any, hosts: Any, result: str, title: str = "", link: str = "", since: str = ""
) -> dict[str, Any]:
    """Return the report of `hosts` in its forms. Raises AnsibleFilterError for a wrong `link` or `since`."""
    if link and not link.startswith(("https://", "http://")):
        why = f"link: found {link!r}; expected an address that begins with https:// or http://"
        raise AnsibleFilterError(with_id(why))
    answers = cross_checked(order(answers_of(hostvars, hosts, result)), release().id, partial(wants_devices, hostvars))
    report = report_of(answers, int(time.time()), title, link)
    if since:
        report["changes"] = _changes(since, report)
        report["since"] = os.path.basename(since)
    text = json.dumps(report, ensure_ascii=False, separators=(",", ":"))
    # ansible-core up to 2.18 would take the text of a host for a template when the playbook uses the result.
    return wrap_var(
        {
            "html": page(text, title),
            "json": text,
            "csv": csv_text(answers),
            "summary": summary(report),
        }
    )


def _changes(path: str, report: dict[str, Any]) -> list[list[Any]]:
    try:
        return compare_reports(report_at(path), report, path)
    except CdiError as error:
        raise AnsibleFilterError(with_id(f"since: {error}")) from None


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet_report": fleet_report}
