# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.join_qualified_name."""

from __future__ import annotations

DOCUMENTATION = r"""
name: join_qualified_name
short_description: Make the qualified name of a CDI device
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Makes C(vendor/class=name), as container runtimes take it for a device, from a name within a kind.
  - Fails if the result would not be a qualified name.
options:
  _input:
    description:
      - The name of the device within its kind; a number will do.
    type: str
    required: true
  kind:
    description:
      - The kind, C(vendor/class).
    type: str
    required: true
positional: kind
seealso:
  - plugin: fleet.cdi.split_qualified_name
    plugin_type: filter
  - plugin: fleet.cdi.qualified_name
    plugin_type: test
"""

EXAMPLES = r"""
- name: Run a container with the first two GPUs
  ansible.builtin.command:
    argv: "{{ ['podman', 'run', '--rm'] + (gpus | map('regex_replace', '^', '--device=')) + ['nvtop'] }}"
  vars:
    gpus: "{{ [0, 1] | map('fleet.cdi.join_qualified_name', 'fleet.cdi/gpu') }}"
  changed_when: false
"""

RETURN = r"""
_value:
  description: The qualified name.
  type: str
  sample: fleet.cdi/gpu=0
"""

from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import names


def join_qualified_name(name: Any, kind: Any) -> str:
    """Join `kind` and `name` to a qualified name."""
    joined = f"{kind}={name}"
    try:
        names.split_qualified_name(joined)
    except CdiError as error:
        raise AnsibleFilterError(with_id(f"join_qualified_name: {error}")) from None
    return joined


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"join_qualified_name": join_qualified_name}
