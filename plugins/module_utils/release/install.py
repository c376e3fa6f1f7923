# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install, activate, roll back and remove releases on a host.

A directory lib/<id> gets that name last, so it is always whole, byte-compiled, on disk, and has run once. `current`
changes by one rename. So a run that is killed at any point leaves the old or the new release active, and the next run
cleans up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Optional

from .. import directories, files
from ..layout import USUAL
from ..records import CdiError, plain
from ..schema import PATH
from .guard import RELEASE
from .host import Interpreter, Run
from .launcher import FLEET_CDI
from .tree import (
    COMMANDS,
    LOCK,
    ON_PATH,
    RECORD,
    InstalledReleases,
    at,
    begun,
    byte_code,
    clear,
    describe,
    discard,
    explained,
    is_command,
    is_on_path,
    launchers_of,
    leads_here,
    leads_to_page,
    link,
    link_commands,
    locked,
    look,
    possible_links,
    read_record,
    remember,
    runnable,
    set_on_path,
    set_shared,
    shared_links,
    state_of,
    target_of,
    unlink_commands,
)
from .unpack import prepare, smoke_run, unpack


class InstallOutcome(NamedTuple):
    """The changes, or in check mode the planned ones. `before` and `after` are documents of one shape, for a diff."""

    changed: bool
    before: dict[str, Any]
    after: dict[str, Any]
    needs_archive: bool = False  # nothing was done; call again with the archive


class _Plan(NamedTuple):
    found: InstalledReleases
    whole: bool  # the wanted release exists, and every file is as built
    ready: bool  # and its launchers and byte code are the wanted ones
    before: dict[str, Any]
    after: dict[str, Any]


def present(
    prefix: str,
    release: str,
    python: Interpreter,
    launchers: Mapping[str, str],
    run: Run,
    archive: Optional[bytes] = None,
    check: bool = False,
    on_path: Optional[bool] = None,
) -> InstallOutcome:
    """Make `release` the active one, started by `launchers` (name -> text). The former one becomes the previous one.

    A whole release on the host is used; otherwise `archive` is needed, and the outcome asks for it if it is None. Every
    check comes before the activation: if one raises CdiError, the former release stays active.

    `on_path`: whether ON_PATH is a link to the command, and SHARED are links to its pages. None: as an earlier run
    said, at first yes. There are such links only for the usual prefix.
    """
    if not RELEASE.fullmatch(release):
        raise CdiError(f"release: found {release!r}; expected <version>-<12 hex digits>")
    with explained(prefix):
        _refuse_foreign(prefix)
        _refuse_foreign_commands(prefix, launchers)
        linked = _linked(prefix, on_path)
        shared = possible_links(prefix) if _wants_links(prefix, on_path) else ()
        plan = _plan(prefix, release, python, launchers, linked, shared)
        changed = plan.before != plan.after
        if changed:
            new = [ON_PATH] if linked and not leads_here(prefix) else []
            _check_writable(prefix, (*new, *(one for one in shared if not leads_to_page(prefix, one))))
        if check or not changed or (archive is None and not plan.whole):
            return InstallOutcome(changed, plan.before, plan.after, changed and not plan.whole and not check)
        with locked(prefix):
            plan = _plan(
                prefix, release, python, launchers, linked, shared
            )  # another process may have changed the host
            clear(prefix, plan.found.leftovers, keep=release)
            if not plan.whole:
                unpack(prefix, release, archive or b"", python, launchers, run)
            elif not plan.ready:
                prepare(at(prefix, release), release, python, launchers, run)
            elif plan.found.active != release:
                smoke_run({name: at(prefix, release, "bin", name) for name in launchers}, release, run)
            previous = plan.after["previous"]
            remember(prefix, rolled_back=None)
            if previous and previous != plan.found.previous:
                link(prefix, "previous", previous)
            link_commands(prefix, launchers)
            # A link that others made to the same command is fine, and stays theirs.
            if prefix == USUAL.prefix and (is_on_path(prefix) or not leads_here(prefix)):
                set_on_path(prefix, linked)
            set_shared(prefix, shared)
            _label(prefix, run)
            if plan.found.active != release:
                link(prefix, "current", release)
            unlink_commands(prefix, launchers)
            clear(prefix, look(prefix).leftovers)
    return InstallOutcome(changed, plan.before, plan.after)


def rollback(prefix: str, run: Run, check: bool = False) -> InstallOutcome:
    """Activate the previous release, with its launcher; the active one becomes the previous one.

    A second call does nothing until another release is installed: repeating a roll-back must not undo it. Raises
    CdiError if the previous release is missing or does not work.
    """
    with explained(prefix):
        _refuse_foreign(prefix)
        found = look(prefix)
        rolled_back = read_record(prefix)["rolled_back"]
        before = describe(prefix, found)
        if rolled_back and rolled_back in found.releases and rolled_back != found.active:
            # An earlier run may have been killed between the two links; this one makes the second.
            target, other = found.active, rolled_back
            wanted = tuple(sorted(launchers_of(at(prefix, target)))) if target else ()
            if found.previous == other and not found.leftovers and found.commands == wanted:
                return InstallOutcome(False, before, before)
        else:
            target, other = found.previous, found.active
        if target is None:
            raise CdiError(
                f"{at(prefix, 'previous')}: there is no previous release to go back to, only {found.active or 'none'} "
                "that is active. Install the release that you want with state=present from a controller that has it."
            )
        directory = at(prefix, target)
        launchers = launchers_of(directory)
        if state_of(directory).identity != target or FLEET_CDI not in launchers:
            raise CdiError(
                f"{directory}: was changed since it was installed; install a release with state=present instead"
            )
        _refuse_foreign_commands(prefix, launchers)
        commands = tuple(sorted(launchers))
        after = describe(prefix, found._replace(active=target, previous=other, leftovers=(), commands=commands))
        if check:
            _check_writable(prefix)
            return InstallOutcome(True, before, after)
        with locked(prefix):
            if look(prefix) != found:
                raise CdiError(f"{prefix}: another process changed the releases just now; run again")
            smoke_run({name: os.path.join(directory, "bin", name) for name in launchers}, target, run)
            remember(prefix, rolled_back=other)
            link_commands(prefix, launchers)
            link(prefix, "current", target)
            unlink_commands(prefix, launchers)
            if other:
                link(prefix, "previous", other)
            clear(prefix, look(prefix).leftovers)
    return InstallOutcome(True, before, after)


def remove(prefix: str, check: bool = False) -> InstallOutcome:
    """Remove what was installed, and the directories made for it that are empty. Raises CdiError."""
    gone = describe(prefix, InstalledReleases(None, None, (), (), ()))
    with explained(prefix):
        _check_directories(prefix)
        found = look(prefix)
        before = describe(prefix, found)
        ours = [name for name in (RECORD, LOCK) if os.path.lexists(at(prefix, name))]
        unnoted = begun(prefix)
        changed = before != gone or bool(ours or unnoted)
        if changed:
            _check_writable(prefix, (*([ON_PATH] if is_on_path(prefix) else []), *shared_links(prefix)))
        if not changed or check:
            return InstallOutcome(changed, before, gone)
        with locked(prefix):
            found = look(prefix)
            unlink_commands(prefix, ())
            set_shared(prefix, ())
            if is_on_path(prefix):
                os.unlink(ON_PATH)
            for name in ("current", "previous"):
                if target_of(prefix, name):
                    os.unlink(at(prefix, name))
            clear(prefix, {*found.leftovers, *found.releases})
            made = read_record(prefix)["directories"]
            for name in (RECORD, LOCK):
                discard(at(prefix, name))
        for directory in sorted({*made, *unnoted}, key=len, reverse=True):
            files.remove_directory(directory)
    return InstallOutcome(True, before, gone)


def _label(prefix: str, run: Run) -> None:
    """Give all files of a prefix the labels of SELinux's policy, where the host has one.

    New files have the label of /opt. systemd chooses the domain of a unit by the label of its program. Where this
    fails, the doctor names the files.
    """
    if os.path.exists(files.ENFORCE):
        with suppress(OSError):
            run([files.RESTORECON, "-R", prefix])


def _wants_links(prefix: str, on_path: Optional[bool]) -> bool:
    """Return True if links outside the prefix are wanted."""
    if prefix != USUAL.prefix:
        return False
    return read_record(prefix)["on_path"] is not False if on_path is None else on_path


def _linked(prefix: str, on_path: Optional[bool]) -> bool:
    """Return True if ON_PATH should be our link. Raises CdiError if it is something else."""
    wanted = _wants_links(prefix, on_path)
    if wanted and os.path.lexists(ON_PATH) and not leads_here(prefix):
        raise CdiError(
            f"{ON_PATH}: is there already and is not ours; expected nothing, or a link to {prefix}/bin/fleet-cdi. Move "
            "it away, or do without it: command_link: false (role: cdi_host_command_link)."
        )
    return wanted and (is_on_path(prefix) or not os.path.lexists(ON_PATH))


def _plan(
    prefix: str,
    release: str,
    python: Interpreter,
    launchers: Mapping[str, str],
    on_path: bool,
    shared: Iterable[str],
) -> _Plan:
    found = look(prefix)
    directory = at(prefix, release)
    state = state_of(directory) if release in found.releases else None
    before = describe(prefix, found, state if release == found.active else None)
    whole = state is not None and state.is_whole(directory, release)
    compiled = byte_code(directory) if whole else []
    ready = whole and runnable(directory, launchers_of(directory)) == launchers and python.tag in compiled
    # A run that was killed too early left new launchers with the digests of the old ones.
    ready = ready and state is not None and not state.differences
    previous = found.previous
    if found.active != release:
        previous = found.active if found.active in found.releases else previous
    after = {
        "release": release,
        "previous": None if previous == release else previous,
        "damaged": False,
        "commands": sorted(launchers),
        "on_path": ON_PATH if on_path else None,
        "shared": list(shared),
        "launchers": {name: text.splitlines() for name, text in sorted(launchers.items())},
        "byte_code": sorted({*compiled, python.tag}),
        "leftovers": [],
    }
    return _Plan(found, whole, ready, before, after)


def _refuse_foreign(prefix: str) -> None:
    """Raise CdiError for foreign files at the paths of a release."""
    _check_directories(prefix)
    for name in ("current", "previous"):
        path = at(prefix, name)
        if os.path.lexists(path) and not target_of(prefix, name):
            raise CdiError(f"{path}: is not a link that fleet.cdi made. Move it away, or choose another prefix.")


def _refuse_foreign_commands(prefix: str, names: Iterable[str]) -> None:
    """Raise CdiError for a foreign file with the name of one of our commands."""
    for name in sorted(names):
        command = os.path.join(prefix, "bin", name)
        if os.path.lexists(command) and not is_command(prefix, name):
            raise CdiError(
                f"{command}: is there already and is not ours; expected nothing, or a link to {COMMANDS}{name}. "
                "Move it away, or choose another prefix."
            )


def _check_directories(prefix: str) -> None:
    """Raise CdiError if another user can change <prefix>, bin or lib, or if one is not a directory.

    Root runs the code in them. The result stays valid for the paths that the later steps use.
    """
    if plain(prefix) != prefix:
        raise CdiError(f"prefix: found {prefix!r}; expected {PATH['description']}")
    for path in [prefix, *(os.path.join(prefix, name) for name in ("bin", "lib"))]:
        try:
            if path != prefix and os.path.islink(path):
                raise CdiError(
                    f"{path}: is a symlink to {os.readlink(path)}; expected a directory, as code that runs as root "
                    "goes there. Name the real path as prefix, or remove the link."
                )
            directories.check(path)
        except NotADirectoryError as error:
            raise CdiError(f"{error.filename}: is not a directory; choose another prefix, or move it away") from None


def _check_writable(prefix: str, links: Iterable[str] = ()) -> None:
    """Raise CdiError if the prefix, or one of `links`, can't be written, as far as this is known without writing."""
    for name in ("bin", "lib"):
        files.check_directory(os.path.join(prefix, name))
    for link_ in links:
        files.check_directory(os.path.dirname(link_))
