# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check words of the protocol's grammar (CDI proposal 2017, "Common ABNF rules").

ALPHA and DIGIT are those of RFC 5234: ASCII only. Upper and lower case differ: `GPU` and `gpu` are two types, with two
folders in /etc/cdi. No regular expressions here: their compilation takes as long as an ADD's own work.
"""

from __future__ import annotations

# Field of an INFO reply. The same reply has a field for each resource-spec, so no resource-type may have this name.
TAKEN = ("cdiVersion",)


def is_resource_type(text: str) -> bool:
    """Check the rule resource-type = ALPHA *15alnum."""
    return _alnum(text, 16) and text[0].isalpha()


def is_resource_subtype(text: str) -> bool:
    """Check the rule resource-subtype = 1*15alnum."""
    return _alnum(text, 15)


def is_resource_spec(text: str) -> bool:
    """Check the rule resource-spec = resource-type [ hyphen resource-subtype ]."""
    type_, hyphen, subtype = text.partition("-")
    return is_resource_type(type_) and (not hyphen or is_resource_subtype(subtype))


def is_request_id(text: str) -> bool:
    """Check the rule request-id = alnum *63alnum-hyp."""
    return _alnum(text.replace("-", "0"), 64) and text[0] != "-"


def is_plugin(text: str) -> bool:
    """Check the name of a binary. The proposal has no rule for it; ours refuses names that lead out of a folder."""
    return _alnum(text.replace("-", "0").replace("_", "0"), 64) and text[0] not in "-_"


def _alnum(text: str, longest: int) -> bool:
    return len(text) <= longest and text.isascii() and text.isalnum()
