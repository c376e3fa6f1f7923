# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.renamed."""

from __future__ import annotations

DOCUMENTATION = r"""
name: renamed
short_description: Read a variable by its old name, with a deprecation warning
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Returns its input. The roles use it in their defaults for variables that have a new name, so that the old name works
    for one release more.
options:
  _input:
    description:
      - The value of the variable with the old name.
    type: any
    required: true
  _old:
    description:
      - The old name.
    type: str
    required: true
  _new:
    description:
      - The new name.
    type: str
    required: true
positional: _old, _new
"""

EXAMPLES = r"""
- name: Read a variable that has a new name
  ansible.builtin.debug:
    msg: "{{ site_colour | default(old) }}"
  vars:
    old: "{{ site_color | default('red') | fleet.cdi.renamed('site_color', 'site_colour') }}"
"""

RETURN = r"""
_value:
  description: The input.
  type: any
"""

from typing import Any, Callable

from ansible_collections.fleet.cdi.plugins.plugin_utils.old_name import warn_of_old_name


def renamed(value: Any, old: str, new: str) -> Any:
    """Return `value`, after a deprecation warning that names both variables."""
    warn_of_old_name(old, new)
    return value


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"renamed": renamed}
