# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi grants: list who holds which devices, and manage the grants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

from ..cdi_plugin.grants import Operator
from ..cdi_plugin.valid_requests import ValidRequests
from ..layout import Layout
from ..manifest import read_manifest
from ..protocol.configurations import directories
from ..records import CdiError, as_document
from . import operand
from .change_log import log_verb
from .taken_options import refuse_options
from .terminal import complain, say, say_document, table

NO_STORE = "This host has no store of grants. If one was lost, `fleet-cdi doctor` names the loss."
OPEN_HEADER = ("DEVICE", "NODE", "HELD BY", "OPEN IN")
HEADER = ("REQUEST", "BY", "OWNER", "STATE", "PROVED", "DEVICES")
PROVED = {True: "yes", False: "no", None: "-"}


def run(arguments: Any, paths: Layout) -> int:
    """Do `action` with `what`. Raises CdiError."""
    action = ACTIONS.get(arguments.action)
    if action is None:
        raise CdiError(f"grants: found {arguments.action!r}; expected {', '.join(ACTIONS)}")
    if arguments.what and arguments.action in ("list", "accept-loss", "migrate"):
        raise CdiError(f"{arguments.action}: found {arguments.what[0]!r}; expected nothing behind it")
    refuse_options(arguments)
    operator = Operator(paths, directories(read_manifest(paths.state_dir).files))
    if operator.ledger_is_new() and arguments.action in NEED_A_STORE:
        NEED_A_STORE[arguments.action](operator, arguments)
        document, lines = _opened(operator, arguments, ())
        if arguments.json:
            say_document({"grants": [], "stamp": operator.stamp(), **document}, sort_keys=False)
        else:
            say(operator.stamp(), NO_STORE, *lines)
        return 0
    status = action(operator, arguments)
    for text in operator.ledger.reports:
        complain(f"warning: {text}")
    return status


def _list(operator: Operator, arguments: Any) -> int:
    """Print all grants, and the stamp for a list of valid requests; return 1 for a problem of a grant or the store."""
    stamp = operator.stamp()  # before anything is read: later grants are newer than the list
    seen = operator.look()
    opened, lines = _opened(operator, arguments, seen.grants)
    bad = bool(seen.problems) or not seen.info.complete
    if arguments.json:
        grants = as_document(seen.grants)
        for part in (part for grant in grants for part in grant["parts"]):
            part["proved"] = seen.proved[part["token"]]
        info = {key: value for key, value in seen.info._asdict().items() if key != "devices"}
        document = {
            "stamp": stamp,
            "grants": grants,
            "problems": [{**key._asdict(), **problem._asdict()} for key, problem in seen.problems],
            "store": {**as_document(info), "devices": [[*name, count] for name, count in seen.info.devices.items()]},
            **opened,
        }
        say_document(document)
        return int(bad)
    say(stamp)
    rows = [
        (
            [grant.key.request_id],
            [f"{grant.key.resource_type}/{grant.key.plugin}"],
            [part.owner],
            [part.state],
            [PROVED[seen.proved[part.token]]],
            [hold.device + "".join(f" {name}:{much}" for name, much in hold.amounts.items()) for hold in part.holds],
        )
        for grant in seen.grants
        for part in grant.parts
    ]
    say(*(table(HEADER, rows) if rows else ["Nothing is granted."]))
    say(*lines)
    for _key, problem in seen.problems:
        say(f"{problem.code}: {problem.text}")
    if not seen.info.complete:
        say("damaged: the store was rebuilt and grants may be lost: none are made until gc or accept-loss")
    return int(bad)


def _opened(operator: Operator, arguments: Any, grants: Iterable[Any]) -> tuple[dict[str, Any], list[str]]:
    """With --open, find the devices that processes have open: (fields of the document, lines for people)."""
    if not arguments.open:
        return {}, []
    found, gaps = operator.open(grants)
    documents = [
        {**document, "held_by": list(one.holders), "expected": one.expected}
        for one in found
        for document in one.occupied.documents()
    ]
    rows = []
    for one in found:
        free = "nobody; expected of this program" if one.expected else "nobody"
        processes = [str(process) for process in one.occupied.openers]
        rows.append(([one.occupied.device], [one.occupied.path], one.holders or [free], processes))
    lines = ["", *(table(OPEN_HEADER, rows) if rows else ["No process has a device open."])]
    return {"open": documents, "open_unseen": gaps}, [*lines, *([f"Not all was seen: {gaps}."] if gaps else [])]


def _gc(operator: Operator, arguments: Any) -> int:
    """Free what no request in the file `what` holds; return 1 if something could not be freed."""
    path, valid = _valid_requests(operator, arguments)
    done = operator.collect(valid, arguments.force, arguments.complete, check=arguments.check)
    if done.refused:
        raise CdiError(f"{operand.called(path)}: {done.refused} (--force)")
    if arguments.json:
        say_document(as_document(done))
    else:
        would = "would be " if arguments.check else ""
        for grant in done.freed:
            say(f"{would}freed: request {grant.key.request_id}: {', '.join(hold.device for hold in grant.holds)}")
        for key in done.young:
            say(f"kept: request {key.request_id} is younger than the list")
        for request_id in done.lost:
            say(f"lost: request {request_id} of the list holds nothing here")
        if not done.freed:
            say("Nothing to free.")
    for text in done.errors:
        complain(text)
    return 1 if done.errors else 0


def _valid_requests(operator: Operator, arguments: Any) -> tuple[str, ValidRequests]:
    """Return the path of a list of valid requests, and the list. Raises CdiError."""
    path = _one(arguments, "a file that lists the valid requests, - for standard input")
    try:
        return path, operator.valid(operand.read(path).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CdiError(f"{operand.called(path)}: is not valid UTF-8 (byte {error.start}); nothing was freed") from None
    except CdiError as error:
        raise CdiError(f"{operand.called(path)}: {error}; nothing was freed") from None


def _withheld(_operator: Operator, arguments: Any) -> str:
    return _one(arguments, "the id of a device that is withheld")


def _release(operator: Operator, arguments: Any) -> int:
    """Allow a withheld device to be granted again."""
    device = _withheld(operator, arguments)
    if operator.release(device) is None:
        raise CdiError(f"release: {device} is not withheld; `fleet-cdi grants list` shows the withheld devices")
    _tell(arguments, {"released": device}, f"released: {device} may be granted again")
    return 0


def _accept_loss(operator: Operator, arguments: Any) -> int:
    """Allow new grants again after damage to the store."""
    forbidden = operator.accept_loss()
    text = "New grants are made again." if forbidden else "Nothing to accept: no grant is known to be lost."
    _tell(arguments, {"accepted": forbidden}, text)
    return 0


def _migrate(operator: Operator, arguments: Any) -> int:
    """Migrate the store to the schema of this release; module host_release calls this when it activates a release."""
    before, now = operator.migrate()
    text = f"The store was migrated from schema {before} to {now}." if before != now else "Nothing to migrate."
    _tell(arguments, {"before": before, "after": now}, text)
    return 0


def _give(operator: Operator, arguments: Any) -> int:
    """Give a kind to owners."""
    if not arguments.what:
        raise CdiError("give: found nothing; expected a kind and its owners: kubernetes, claims, external")
    kind, owners = arguments.what[0], arguments.what[1:]
    if arguments.any and owners:
        raise CdiError(f"give: found --any and {owners[0]}; expected one of them")
    if not (arguments.any or owners):
        raise CdiError(
            f"give: found no owner of {kind}; expected kubernetes, claims, external, or several of them. "
            "--any takes the kind from its owners"
        )
    operator.check_kind(kind)
    operator.give(kind, owners)
    text = f"{kind} is for {' and '.join(owners) or 'the owner that holds devices of it'}"
    log_verb("grants", [text])
    _tell(arguments, {"kind": kind, "owners": owners}, text)
    return 0


def _tell(arguments: Any, document: dict[str, Any], text: str) -> None:
    """Print the result, as JSON or as text."""
    if arguments.json:
        say_document(document)
    else:
        say(text)


def _one(arguments: Any, what: str) -> str:
    if len(arguments.what) != 1:
        raise CdiError(f"{arguments.action}: found {len(arguments.what)} operands; expected {what}")
    return str(arguments.what[0])


def _no_operand(_operator: Operator, _arguments: Any) -> None:
    """Read nothing: the action takes no operand."""


# Actions that only say so on a host that has no store, after these have read and checked the operands.
NEED_A_STORE: dict[str, Callable[[Operator, Any], Any]] = {
    "list": _no_operand,
    "gc": _valid_requests,
    "release": _withheld,
    "accept-loss": _no_operand,
}

ACTIONS: dict[str, Callable[[Operator, Any], int]] = {
    "list": _list,
    "gc": _gc,
    "release": _release,
    "accept-loss": _accept_loss,
    "give": _give,
    "migrate": _migrate,
}
