# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check words of the protocol's grammar (CDI proposal 2017, "Common ABNF rules"), and amounts of its requests.

ALPHA and DIGIT are those of RFC 5234: ASCII only. Upper and lower case differ: `GPU` and `gpu` are two types, with two
folders in /etc/cdi. No regular expressions here: their compilation takes as long as an ADD's own work.
"""

from __future__ import annotations

from typing import Optional

# Field of an INFO reply. The same reply has a field for each resource-spec, so no resource-type may have this name.
TAKEN = ("cdiVersion",)

LARGEST = (1 << 63) - 1  # amount that the store and most JSON parsers can hold
LONGEST = 20  # digits of a number that we parse; LARGEST has 19

MIB = 1 << 20
# The suffixes of the proposal's examples (2048Mi, 8Gi), and those of Kubernetes' quantities.
FACTORS = {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}
FACTORS.update({unit: 1000**power for power, unit in enumerate("kMGTPE", 1)})


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


def is_memory(resource_spec: str) -> bool:
    """Return True for a sub-resource in MiB: `gpu-memory` of the proposal, and similar names."""
    return resource_spec.partition("-")[2].endswith("memory")


def amount(resource_spec: str, text: str) -> Optional[int]:
    """Return the amount in `text`, which may be too large; None unless it is an integer without sign or exponent.

    Memory is in MiB, rounded up, because the container needs at least that much; it alone may have a suffix of FACTORS.
    """
    suffix = text.lstrip("0123456789")
    number = digits(text[: len(text) - len(suffix)])
    if not number or (suffix and not (is_memory(resource_spec) and suffix in FACTORS)):
        return None
    return -(-int(number) * FACTORS[suffix] // MIB) if suffix else int(number)


def digits(text: str) -> str:
    """Return `text` without leading zeros if it is a plain integer of bounded length, else "".

    A plain integer has no sign, point or exponent.
    """
    plain = text.lstrip("0") or text[-1:]
    return plain if len(plain) <= LONGEST and plain.isascii() and plain.isdecimal() else ""


def _alnum(text: str, longest: int) -> bool:
    return len(text) <= longest and text.isascii() and text.isalnum()
