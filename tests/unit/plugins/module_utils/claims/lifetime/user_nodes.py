# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device nodes in a root directory of a test, and claims of them for an ordinary user."""

from __future__ import annotations

import os
import pwd
import stat

from ansible_collections.fleet.cdi.plugins.module_utils import directories
from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import user_access
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimPart as Part
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimRecord, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import Node
from ansible_collections.fleet.cdi.plugins.module_utils.system import access_list

USER = "daemon"
UID = pwd.getpwnam(USER).pw_uid


class Nodes:
    """Device nodes below a root directory, and claims of them."""

    def __init__(self, directory):
        self.root = directory / "root"
        (self.root / "dev").mkdir(parents=True)
        self.places = Layout(state_dir=str(directory / "state"), root=str(self.root))
        (directory / "state/claims").mkdir(parents=True)

    def make(self, name, minor, mode=0o600):
        path = self.root / "dev" / name
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(1, minor))
        os.chmod(path, mode)
        return Node(f"/dev/{name}", "c", 1, minor)

    def claim(self, id_, *nodes, uid=UID):
        """A claim that has given its access, as `claim add` does it."""
        wanted = WantedClaim(id_, {"gpu": 1}, for_user=USER)
        claim = user_access.plan_access(self.places, ClaimRecord(wanted, parts=(Part("x", nodes),), uid=uid, token="0"))
        store.write_claim(self.places.state_dir, claim)
        user_access.give_access(self.places, claim)
        return claim

    def rights(self, node):
        handle = os.open(str(self.root) + node.path, os.O_PATH)
        try:
            return access_list.effective_rights(access_list.read_access(handle), UID)
        finally:
            os.close(handle)

    def state(self, node):
        """Mode and access list."""
        path = str(self.root) + node.path
        return oct(os.stat(path).st_mode), directories.ACCESS_LIST in os.listxattr(path)
