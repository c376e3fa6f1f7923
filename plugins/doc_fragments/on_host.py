# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all modules that work through the release have in common (plugins/module_utils/on_host.py)."""

from __future__ import annotations


class ModuleDocFragment:
    """`fleet.cdi.on_host`."""

    DOCUMENTATION = r"""
options:
  prefix:
    description:
      - Where the on-host release is installed, see M(fleet.cdi.host_release). The module runs the code of this
        collection's release from there. Where that is not installed its archive is sent along for this one task.
    type: path
    default: /opt/cdi
  release:
    description:
      - Filled in by the action plugin, not for use in a task. The release of the controller's collection.
    type: str
  archive:
    description:
      - Filled in by the action plugin, not for use in a task. The archive that it transferred.
    type: path
"""
