# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test fleet.cdi.qualified_name."""

from __future__ import annotations

DOCUMENTATION = r"""
name: qualified_name
short_description: Whether a text is the qualified name of a CDI device
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Container runtimes know a device by its qualified name, C(vendor/class=name).
  - The test does not tell if such a device exists; M(fleet.cdi.spec_info) does.
options:
  _input:
    description:
      - Any value. A value that is not text is not a qualified name.
    type: raw
    required: true
seealso:
  - plugin: fleet.cdi.split_qualified_name
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Refuse devices that no runtime would take
  ansible.builtin.assert:
    that: item is fleet.cdi.qualified_name
  loop:
    - fleet.cdi/gpu=0
    - example.com/scanner=front-desk

- name: Tell CDI devices from device nodes
  ansible.builtin.debug:
    msg: "{{ ['/dev/fuse', 'fleet.cdi/misc=fuse'] | select('fleet.cdi.qualified_name') }}"
"""

RETURN = r"""
_value:
  description: Whether the value is a qualified name.
  type: bool
"""

from typing import Any, Callable

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import names


def qualified_name(value: Any) -> bool:
    """Return True if `value` is `vendor/class=name`. A Jinja Undefined raises its own error."""
    try:
        names.split_qualified_name(str(value))
    except CdiError:
        return False
    return True


class TestModule:
    """The class by which Ansible finds the test."""

    def tests(self) -> dict[str, Callable[..., bool]]:
        return {"qualified_name": qualified_name}
