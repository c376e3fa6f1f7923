# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the result of module claim_info: all claims, and their faults."""

from __future__ import annotations

from typing import Any

from .check_claims import check_claims
from .claim import places_of
from .ended import this_boot


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`. Only reads, in every mode. Raises CdiError."""
    places = places_of(options)
    found = check_claims(places, this_boot(places))
    wanted = options["id"]
    claims = [claim.document for claim in found.claims if wanted in (None, claim.id)]
    faults = [fault for fault in found.faults if wanted in (None, fault.id)]
    return {"claims": claims, "faults": [fault.document for fault in faults]}, []
