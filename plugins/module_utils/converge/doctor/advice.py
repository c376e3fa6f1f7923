# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Next steps that several rules share."""

from __future__ import annotations

PROVISION = "run the provisioning again: `ansible-playbook fleet.cdi.provision`"
SEARCHED = (
    "name it in `spec_dirs` of the runtimes (variable cdi_host_runtime_settings), or let cdi_host_spec_dir be one of "
    "theirs"
)
REFRESH = "`fleet-cdi refresh`"
MOVE = "move it away to keep its content (`mv {subject} {subject}.old`); then "
CLAIM = "correct the specs of its devices; then `fleet-cdi claim restore` writes it again"
AGAIN = "let the tool that wrote it write it again"
VENDOR = (
    f"{AGAIN}; `fleet-cdi specs` checks the result"  # against the host: `fleet-cdi validate` looks at the file alone
)
