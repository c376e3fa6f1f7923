# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the protocol's grammar (CDI proposal 2017, "Common ABNF rules").

ALPHA and DIGIT are those of RFC 5234, so ASCII only. Upper and lower case differ: `GPU` is no `gpu`, just as the names
of their folders in /etc/cdi differ. Without regular expressions: to compile these takes as long as an ADD's own work.
"""

from __future__ import annotations

# INFO maps resource-specs to amounts beside this field, so a resource-type of that name could not be told from it.
TAKEN = ("cdiVersion",)


def is_resource_type(text: str) -> bool:
    """resource-type = ALPHA *15alnum"""
    return _alnum(text, 16) and text[0].isalpha()


def is_resource_subtype(text: str) -> bool:
    """resource-subtype = 1*15alnum"""
    return _alnum(text, 15)


def is_resource_spec(text: str) -> bool:
    """resource-spec = resource-type [ hyphen resource-subtype ]"""
    type_, hyphen, subtype = text.partition("-")
    return is_resource_type(type_) and (not hyphen or is_resource_subtype(subtype))


def is_request_id(text: str) -> bool:
    """request-id = alnum *63alnum-hyp"""
    return _alnum(text.replace("-", "0"), 64) and text[0] != "-"


def is_plugin(text: str) -> bool:
    """The name of a binary. The proposal has no rule for it: ours lets nothing through that leads out of a folder."""
    return _alnum(text.replace("-", "0").replace("_", "0"), 64) and text[0] not in "-_"


def _alnum(text: str, longest: int) -> bool:
    return len(text) <= longest and text.isascii() and text.isalnum()
