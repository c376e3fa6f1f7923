# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the result of module claim: one claim there, or given back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Optional

from ..layout import Layout
from ..records import CdiError
from ..release.needed_by import check_host
from .add_claim import add_claim, check_wanted, refuse_excess, same_claim
from .calls import Caller
from .delete_claim import can_delete, delete_claim
from .ended import this_boot
from .record import ASKED, ClaimRecord, WantedClaim, parse_amounts
from .store import read_claim

# What a diff shows of a claim.
SHOWN = ("state", "amounts", "near", "release_on_stop", "for_user", "keep", "nodes", "names")


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`. Raises CdiError."""
    warnings = check_host(options, check)
    places = places_of(options)
    caller = Caller(os.path.join(options["prefix"], "bin"), options["timeout"])
    boot_id, id_ = this_boot(places), options["id"]
    before = read_claim(places.state_dir, id_)
    if options["state"] == "absent":
        if not check:
            changed = delete_claim(places, caller, boot_id, id_, force=options["force"])
        else:
            changed = can_delete(places, id_, force=options["force"])
        return _result(id_, changed, before, None), warnings
    wanted = _wanted(options)
    if not check:
        claim, changed = add_claim(places, caller, boot_id, wanted, options["reuse"])
        return _result(id_, changed, before, claim), warnings
    if before and before.state != ASKED:
        return _result(id_, False, before, same_claim(before, wanted, boot_id)), warnings
    refuse_excess(caller, check_wanted(places, boot_id, wanted, options["reuse"]), wanted)
    return _result(id_, True, before, ClaimRecord(wanted, "granted")), warnings


def places_of(options: Mapping[str, Any]) -> Layout:
    """Return the places on the host that the options of both modules name."""
    return Layout(
        options["state_dir"],
        options["device_list"],
        options["config_dir"],
        prefix=options["prefix"],
        spec_dirs=tuple(options["spec_dirs"]),
    )


def _wanted(options: Mapping[str, Any]) -> WantedClaim:
    request = options["request"] or {}
    amounts = parse_amounts([f"{spec}:{amount}" for spec, amount in request.items()])
    near = options["near"] or []
    if any(node < 0 for node in near):
        raise CdiError(f"near: found {min(near)}; expected numbers of NUMA nodes, 0 or more")
    ends = (options["release_on_stop"], options["for_user"] or "", options["keep"])
    return WantedClaim(options["id"], amounts, tuple(sorted(set(near))), *ends)


def _result(id_: str, changed: bool, before: Optional[ClaimRecord], after: Optional[ClaimRecord]) -> dict[str, Any]:
    shown = [{name: one.document[name] for name in SHOWN} if one else "" for one in (before, after)]
    diff = {"before_header": id_, "after_header": id_, "before": shown[0], "after": shown[1]}
    return {"changed": changed, "claim": after.document if after else None, "diff": [diff]}
