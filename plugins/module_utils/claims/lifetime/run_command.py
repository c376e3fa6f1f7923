# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command of the host with a claim: make it, run the command with these devices only, and give it back.

The command's process is the user of the claim before the claim is granted, and the kernel kills it together with this
process. So if this process is killed at any point, `claim gc` finds a claim that is over. A container that the command
started with the claim is another user of it: while it runs, the claim stays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from ...layout import Layout
from ...records import CdiError
from ...spec import registry
from ...spec.inject import resolve_edits
from ...system.commands.device_scope import check_scopes, scope_words, stop_scope
from ...system.commands.waiting_process import WaitingProcess
from ...system.device_nodes import numbers_at
from ..add_claim import add_claim, read_node
from ..calls import Caller
from ..delete_claim import delete_claim
from ..record import ClaimRecord, WantedClaim
from .host_edits import host_edits
from .users import note_command, scope_of


class EndedCommand(NamedTuple):
    """A command that has ended."""

    status: int  # its exit status, or 128 + N if signal N ended it
    kept: str = ""  # why the claim could not be given back


def run_command(
    places: Layout, caller: Caller, boot_id: str, wanted: WantedClaim, reuse: bool, command: Sequence[str]
) -> EndedCommand:
    """Run `command` with a claim of its own. Raises CdiError if it was not started; then nothing is left of the claim.

    When the command has ended, processes that it left are ended, too. A container that it started keeps the claim.
    """
    check_scopes()
    with WaitingProcess() as process:
        claim, changed = add_claim(
            places, caller, boot_id, wanted, reuse, lambda made: note_command(places.state_dir, made, process.pid)
        )
        if not changed:
            raise CdiError(f"claim {wanted.id}: is there already; choose another id, or none")
        try:
            words, env = _program(places, claim, command)
        except CdiError:
            process.end()
            delete_claim(places, caller, boot_id, wanted.id, claim.token)
            raise
        status = process.run(words, {**os.environ, **env})
    try:
        stop_scope(scope_of(claim))
        delete_claim(places, caller, boot_id, wanted.id, claim.token)
    except CdiError as error:
        return EndedCommand(status, str(error))
    return EndedCommand(status)


def _program(places: Layout, claim: ClaimRecord, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words that run `command` with the claim's devices only, and the variables that it gets."""
    edits = [one for _path, one in resolve_edits([claim.device], registry.load(places.spec_dirs))]
    on_host = host_edits(edits, lambda path: read_node(places.root, path), numbers_at)
    env = {**on_host.env, "FLEET_CDI_CLAIM": claim.device}
    env["FLEET_CDI_DEVICES"] = " ".join(node.path for node in claim.nodes)
    return scope_words(scope_of(claim), on_host.allowed, command), env
