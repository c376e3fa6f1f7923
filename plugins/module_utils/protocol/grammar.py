# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the protocol's grammar (CDI proposal 2017, "Common ABNF rules"). Private API of fleet.cdi.

ALPHA and DIGIT are those of RFC 5234, so ASCII only. Upper and lower case differ: `GPU` is no `gpu`, just as the names
of their folders in /etc/cdi differ.
"""

from __future__ import annotations

import re

# \Z, because "$" alone lets a final line break through.
RESOURCE_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9]{0,15}\Z")
RESOURCE_SUBTYPE = re.compile(r"[A-Za-z0-9]{1,15}\Z")
RESOURCE_SPEC = re.compile(r"[A-Za-z][A-Za-z0-9]{0,15}(-[A-Za-z0-9]{1,15})?\Z")
REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}\Z")
# The proposal has no rule for the name of a binary; ours lets nothing through that leads out of a folder.
PLUGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")

# INFO maps resource-specs to amounts beside this field, so a resource-type of that name could not be told from it.
TAKEN = ("cdiVersion",)
