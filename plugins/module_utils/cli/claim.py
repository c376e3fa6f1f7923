# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi claim: devices by name for containers, jobs and services, and given back."""

from __future__ import annotations

import os
from typing import Any, Callable, NamedTuple

from ..claims.calls import Caller
from ..claims.ended import this_boot
from ..claims.lifetime.users import shown_state
from ..claims.record import ClaimRecord, WantedClaim, is_amount, parse_amounts, parse_near
from ..claims.store import read_claims
from ..explanations.shown import with_id
from ..layout import Layout
from ..records import CdiError, as_document
from .operand import seconds
from .taken_options import refuse_options
from .terminal import complain, say, say_document, table

HEADER = ("CLAIM", "STATE", "REQUEST", "DEVICE", "NODES")


class _Asked(NamedTuple):
    """A command of the verb."""

    arguments: Any
    paths: Layout
    caller: Caller
    boot_id: str


def run(arguments: Any, paths: Layout) -> int:
    """Do `action` with `what`. Raises CdiError."""
    action = ACTIONS.get(arguments.action)
    if action is None:
        raise CdiError(f"claim: found {arguments.action!r}; expected {', '.join(ACTIONS)}")
    if arguments.what and arguments.action not in ("add", "del", "exec", "pod"):
        raise CdiError(f"claim {arguments.action}: found {arguments.what[0]!r}; expected nothing behind it")
    if arguments.action != "exec":  # an error of exec has an exit status of its own
        refuse_options(arguments)
    caller = Caller(os.path.join(paths.prefix, "bin"), fork=True)
    return action(_Asked(arguments, paths, caller, this_boot(paths)))


def _add(asked: _Asked) -> int:
    from ..claims.add_claim import add_claim  # each command imports what it needs: it runs for each container

    given = asked.arguments
    if len(given.what) < 2:
        raise CdiError("claim add: expected an id and what it is for: claim add job-42 gpu:1 tty:1")
    near, ends = parse_near(given.near or ""), (given.release_on_stop, getattr(given, "for") or "", given.keep)
    wanted = WantedClaim(given.what[0], parse_amounts(given.what[1:]), near, *ends)
    claim, changed = add_claim(asked.paths, asked.caller, asked.boot_id, wanted, given.reuse)
    if given.json:
        say_document({**claim.document, "changed": changed})
    else:
        say(claim.device)
    return 0


def _exec(asked: _Asked) -> int:
    from ..claims.lifetime.run_command import run_command
    from ..system.commands.waiting_process import NOT_STARTED

    given = asked.arguments
    try:
        refuse_options(given)
        if not given.command:
            raise CdiError("claim exec: expected a command: claim exec gpu:1 -- COMMAND")
        if given.json:
            raise CdiError("claim exec: found --json, and the output is the command's; expected it without")
        named = given.what and not is_amount(given.what[0])
        id_, *amounts = given.what if named else [f"exec-{os.urandom(8).hex()}", *given.what]
        wanted = WantedClaim(id_, parse_amounts(amounts), parse_near(given.near or ""), release_on_stop=True)
        ended = run_command(asked.paths, asked.caller, asked.boot_id, wanted, given.reuse, given.command)
    except (CdiError, OSError) as error:
        complain(" ".join(str(error).split()))
        return NOT_STARTED
    if ended.kept:
        complain(ended.kept)
    return ended.status


def _del(asked: _Asked) -> int:
    from ..claims.delete_claim import can_delete, delete_claim

    given = asked.arguments
    if len(given.what) != 1:
        raise CdiError(f"claim del: found {len(given.what)} operands; expected the id of a claim")
    which = (given.what[0], given.token or "", given.force)
    if given.check:
        done = can_delete(asked.paths, *which)
    else:
        done = delete_claim(asked.paths, asked.caller, asked.boot_id, *which)
    if given.json:
        say_document({"id": given.what[0], "changed": done})
    else:
        say(f"{_would(given)}given back: {given.what[0]}" if done else "Nothing to give back.")
    return 0


def _pod(asked: _Asked) -> int:
    from .claim_pod import run_pod

    return run_pod(asked.arguments, asked.paths, asked.caller)


def _list(asked: _Asked) -> int:
    stored = read_claims(asked.paths.state_dir)
    claims = [shown_state(asked.paths.state_dir, claim) for claim in stored.claims]
    if asked.arguments.json:
        say_document({"claims": [claim.document for claim in claims], "errors": [*stored.errors.values()]})
    elif claims:
        say(*table(HEADER, map(_row, claims)))
    else:
        say("No claims on this host.")
    _complain(stored.errors.values(), asked)
    return 1 if stored.errors else 0


def _row(claim: ClaimRecord) -> list[list[str]]:
    return [[claim.id], [claim.state], [str(claim.wanted)], [claim.device], [node.path for node in claim.nodes]]


def _check(asked: _Asked) -> int:
    from ..claims.check_claims import check_claims

    found = check_claims(asked.paths, asked.boot_id)
    if asked.arguments.json:
        faults = [fault.document for fault in found.faults]
        say_document({"claims": [claim.document for claim in found.claims], "faults": faults})
    else:
        for fault in found.faults:
            say(with_id(f"{fault.id}: {fault.fault}; {fault.advice}"))
        if not found.faults:
            say(f"All claims agree with this host ({len(found.claims)}).")
    return 1 if found.faults else 0


def _gc(asked: _Asked) -> int:
    from ..claims.lifetime.collect_claims import collect_claims

    idle_for = seconds("--idle-for", asked.arguments.idle_for, 0.0)
    done = collect_claims(asked.paths, asked.caller, asked.boot_id, idle_for, check=asked.arguments.check)
    lines = [*(f"given back: {id_}" for id_ in done.freed), *(f"removed: {path}" for path in done.removed)]
    return _told(asked, done, [_would(asked.arguments) + line for line in lines])


def _restore(asked: _Asked) -> int:
    from ..claims.restore_claims import restore_claims

    done = restore_claims(asked.paths, asked.caller, asked.boot_id)
    return _told(asked, done, [f"restored: {id_}" for id_ in done.restored])


def _would(arguments: Any) -> str:
    return "would be " if arguments.check else ""


def _told(asked: _Asked, done: Any, lines: list[str]) -> int:
    if asked.arguments.json:
        say_document(as_document(done))
    else:
        say(*(lines or ["Nothing to do."]))
    _complain(done.failed, asked)
    return 1 if done.failed else 0


def _complain(texts: Any, asked: _Asked) -> None:
    if not asked.arguments.json:
        for text in texts:
            complain(text)


ACTIONS: dict[str, Callable[[_Asked], int]] = {
    "add": _add,
    "exec": _exec,
    "del": _del,
    "pod": _pod,
    "list": _list,
    "check": _check,
    "gc": _gc,
    "restore": _restore,
}
