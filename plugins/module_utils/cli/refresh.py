# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi refresh: update specs, inventory and pools for the present devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ..converge.driver import device_links, nvidia_nodes
from ..converge.kinds.refresh_all import Missing, Report, refresh
from ..converge.last_refresh import LastRefresh, note_refresh
from ..layout import Layout
from ..records import CdiError, as_document
from ..system import systemd
from .change_log import log_verb
from .operand import seconds
from .step_line import StepLine
from .taken_options import refuse_options
from .terminal import complain, say, say_document

GRACE = 600.0  # seconds; docs/refresh.md


def run(arguments: Any, paths: Layout) -> int:
    """Refresh and print the changes; return 1 if devices are missing or something failed. Raises CdiError."""
    refuse_options(arguments)
    timeout, grace = seconds("--timeout", arguments.timeout, 0.0), seconds("--grace", arguments.grace, GRACE)
    if arguments.drop:
        timeout = grace = 0.0
    made = list(_made(arguments.check, arguments.json)) if arguments.make_nodes else []
    with StepLine("looks for devices") as line:

        def sleep(pause: float) -> None:
            line.step(f"waits for devices that are missing, {timeout:g} s at most")
            time.sleep(pause)

        done = _noted(
            lambda: refresh(paths, timeout, grace, arguments.check, claims=not arguments.no_claims, sleep=sleep),
            paths,
            arguments,
        )
        done = _linked(done, paths, arguments.check)
    if not arguments.check:
        log_verb("refresh", (f"changed: {path}" for path in done.changed))
    if arguments.json:
        say_document({"made": made, **as_document(done), "check": arguments.check})
    else:
        _tell(done, arguments.check, bool(made))
    return 1 if done.failed or any(one.kept for one in done.missing) else 0


def _made(check: bool, silent: bool) -> Iterator[str]:
    """Make the control nodes that are missing, unless it only looks; yield their paths. Raises CdiError.

    Each one is told at once: what follows may fail.
    """
    for node in nvidia_nodes.missing_nodes():
        if not check:
            nvidia_nodes.make_nodes(node)
            log_verb("refresh", [f"made: {node.path}"])
        if not silent:
            say(f"{'would be ' if check else ''}made: {node.path}")
        yield node.path


def _noted(work: Callable[[], Report], paths: Layout, arguments: Any) -> Report:
    """Do the work and note how it ended, unless it only looks. Raises CdiError."""
    begun, ok, missing = time.monotonic(), False, 0
    try:
        done = work()
        ok, missing = not done.failed, sum(one.kept for one in done.missing)
        return done
    finally:
        if not arguments.check:
            last = LastRefresh(int(time.time()), round(time.monotonic() - begun, 3), ok, missing)
            with suppress(CdiError):  # a refresh that worked must not fail for its note
                note_refresh(paths.inventory, last)


def _linked(done: Report, paths: Layout, check: bool) -> Report:
    """Keep the links by number to device nodes of the specs; add changed links to `done`. Only systemd needs them."""
    try:
        links = device_links.keep_links(paths.spec_dirs, paths.state_dir, check) if systemd.booted() else ()
    except CdiError as error:
        return done._replace(failed=(*done.failed, str(error)))
    return done._replace(changed=(*done.changed, *(one.path for one in links)))


def _tell(done: Report, check: bool, made: bool) -> None:
    """Print changes on stdout and problems on stderr: a journal keeps both."""
    for text in done.warnings:
        complain(f"warning: {text}")
    for one in done.missing:
        complain(_missing(one))
    for text in done.failed:
        complain(f"failed: {text}")
    for path in done.changed:
        say(f"{'would be changed' if check else 'changed'}: {path}")
    if not (made or done.changed or done.failed):
        say("Nothing to change.")


def _missing(one: Missing) -> str:
    name = f"{one.kind}={one.names[0]}"
    if one.kept:
        return f"missing: {name} ({one.id}), gone since {one.since}: it is kept in its spec and marked stale"
    return f"dropped: {name} ({one.id}) is gone and not offered any more"
