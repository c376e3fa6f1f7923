# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.fleet_verdict."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_verdict
short_description: Judge each host of a fleet, and the fleet
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Joins the results of M(fleet.cdi.host_report_info) and of M(fleet.cdi.cdi_host) in check mode. Playbook
    C(fleet.cdi.verify) calls it.
  - A host is V(well) if everything about it is known and nothing is wrong. Else it is V(unhealthy), V(occupied),
    V(stale), V(drift), V(problem) or V(unknown), of these the first that it has.
options:
  _input:
    description:
      - C(hostvars).
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
      - The variable with the result of M(fleet.cdi.host_report_info).
    type: str
    required: true
  check:
    description:
      - The variable with the result of M(fleet.cdi.cdi_host) in check mode.
    type: str
    required: true
  any_release:
    description:
      - Whether a host may have another release than that of the controller, as after a roll-back.
    type: bool
    default: false
positional: _hosts
"""

EXAMPLES = r"""
- name: Fail if a host is not well
  ansible.builtin.assert:
    that: verdict.well
    fail_msg: "{{ verdict.table }}"
  vars:
    verdict: "{{ hostvars | fleet.cdi.fleet_verdict(ansible_play_hosts_all, result='truth', check='drift') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The verdicts in several forms.
  type: dict
  contains:
    well:
      description: Whether all hosts are well.
      type: bool
    json:
      description: The verdict and the problems of each host, for programs.
      type: str
    xml:
      description: The same as JUnit XML, a test case for each host.
      type: str
    table:
      description: The hosts that are not well, as lines of text.
      type: list
      elements: str
    problems:
      description: For each host that is not well, its problems as lines of text.
      type: dict
"""

from functools import partial
from typing import Any, Callable

from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.fleet.cdi.plugins.plugin_utils.on_host import release
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.cross_check import cross_checked
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import order
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import answers_of, plain
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.verdict import verdict_files, verdict_of
from ansible_collections.fleet.cdi.plugins.plugin_utils.settings import wants_devices


def fleet_verdict(hostvars: Any, hosts: Any, result: str, check: str, any_release: bool = False) -> Any:
    """Return the verdicts on `hosts` in their forms."""
    wanted = "" if any_release else release().id
    answers = cross_checked(order(answers_of(hostvars, hosts, result)), wanted, partial(wants_devices, hostvars))
    verdicts = [verdict_of(answer, plain(hostvars[answer.name].get(check))) for answer in answers]
    # ansible-core up to 2.18 would take the text of a host for a template when the playbook uses the result.
    return wrap_var(verdict_files(verdicts))


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet_verdict": fleet_verdict}
