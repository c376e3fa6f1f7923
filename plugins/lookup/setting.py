# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup fleet.cdi.setting."""

from __future__ import annotations

DOCUMENTATION = r"""
name: setting
short_description: Read a list or mapping of the settings with its layers
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Returns the value of a variable of a role, to which every variable with its name and a suffix adds, as
    C(cdi_host_load_modules_rack7) adds to C(cdi_host_load_modules). The roles read their lists and mappings so.
  - The variable itself comes first, then its layers by name. A layer adds items to a list, which has each item once,
    and keys to a mapping. Mappings of the same key are merged, at any depth. Otherwise the later layer counts.
options:
  _terms:
    description:
      - Names of variables.
    type: list
    elements: str
    required: true
  default:
    description:
      - The value of a variable that is not set. Without it, such a variable is an error.
    type: raw
"""

EXAMPLES = r"""
- name: Show the kernel modules that site and rack settings add up to
  ansible.builtin.debug:
    msg: "{{ lookup('fleet.cdi.setting', 'cdi_host_load_modules') }}"
  vars:
    cdi_host_load_modules: [nvidia]
    cdi_host_load_modules_rack7: [ve_drv]
"""

RETURN = r"""
_raw:
  description: The values, in the order of the names.
  type: list
  elements: raw
  sample:
    - [nvidia, ve_drv]
"""

from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings


class LookupModule(LookupBase):
    """The class by which Ansible finds the lookup."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[Any]:
        self.set_options(var_options=variables, direct=kwargs)
        return [self._merged(str(name), variables or {}) for name in terms]

    def _merged(self, name: str, variables: Any) -> Any:
        default = self.get_option("default")
        if name not in variables and default is None:
            why = f"fleet.cdi.setting: {name} is not set; expected the name of a variable that is set"
            raise AnsibleError(with_id(why))
        documents = {layer: self._templar.template(variables[layer]) for layer in settings.layers(name, variables)}
        try:
            return settings.merge(name, documents, documents.get(name, default))
        except CdiError as error:
            raise AnsibleError(with_id(str(error))) from None
