# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of all modules says alike. Needed by ansible-doc only, never sent to a host."""

from __future__ import annotations


class ModuleDocFragment:
    """`fleet.cdi.attributes` for every module, and `.info_module` or `.writer` beside it."""

    DOCUMENTATION = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/fleet.cdi.all) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - fleet.cdi.all
  async:
    description: Can run with the keyword C(async). The keyword is refused, because the action plugin runs first.
    support: none
  check_mode:
    description: >-
      Can run in C(check_mode) and return changed status prediction without modifying target. The one exception is a
      damaged store of grants. Each program that reads it rebuilds it, and keeps the damaged file beside the new one.
  diff_mode:
    description: >-
      Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode. Of specs
      and inventories they name the devices that change, and are the whole text with C(-v).
  idempotent:
    description: When run twice in a row outside check mode with the same arguments, the second run changes nothing.
  platform:
    description: Target operating systems that the module can run on.
    platforms: linux
    support: full
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details: This module only reads. The exception above counts where it reads grants.
  diff_mode:
    support: N/A
    details: This module only reads, see C(check_mode).
  idempotent:
    support: full
    details: This module only reads, see C(check_mode).
"""

    WRITER = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""
