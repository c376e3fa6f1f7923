# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn an archive into a release that has run once: unpack, byte-compile, try."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Mapping

from .. import files
from ..records import CdiError
from . import sums
from .contents import identify
from .host import Interpreter, Run
from .launcher import CDI_HOOK, FLEET_CDI, SLURM_JOB
from .tree import at, discard, sync

# What importlib says since Python 3.13 if the kernel takes only a part of a file (SourceFileLoader, _write_atomic).
PARTLY = "didn't write the full pyc file"


def unpack(
    prefix: str, release: str, archive: bytes, python: Interpreter, launchers: Mapping[str, str], run: Run
) -> None:
    """Make `<prefix>/lib/<release>` from `archive`; replace anything with that name."""
    sources = _read(archive, release)
    partial, old, directory = (
        at(prefix, f".partial-{release}"),
        at(prefix, f".partial-{release}.old"),
        at(prefix, release),
    )
    try:
        os.mkdir(partial, 0o700)
        files.drop_access_lists(partial)  # root runs the files in it
        for name, content in sources.items():
            path = os.path.join(partial, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(content)
        prepare(partial, release, python, launchers, run)
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)  # this frees space on a full disk
        raise
    if os.path.lexists(directory):
        os.rename(directory, old)
    os.rename(partial, directory)
    sync(at(prefix))
    discard(old)


def _read(archive: bytes, release: str) -> dict[str, bytes]:
    import zipfile  # a host that has the release need not pay for it

    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            sources = {name: opened.read(name) for name in opened.namelist()}
    except zipfile.BadZipFile as error:
        raise CdiError(
            f"archive: is damaged ({error}); expected release {release}. Run again to transfer it again."
        ) from None
    found = identify(sources)
    if found != release:
        raise CdiError(f"archive: holds release {found}; expected {release}. Run again to transfer it again.")
    return sources


def prepare(directory: str, release: str, python: Interpreter, launchers: Mapping[str, str], run: Run) -> None:
    """Byte-compile the release in `directory`, bring it to disk, run its launchers once, then install them."""
    command = [python.path, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    # Then tracebacks show the final path.
    command += ["-s", directory, "-p", os.path.join(os.path.dirname(directory), release)]
    status, out, err = run([*command, os.path.join(directory, "ansible_collections")])
    if status != 0:
        said = " ".join((out + err).split())[-400:]
        if PARTLY in said:
            said = f"{os.strerror(errno.ENOSPC)}, or a limit on the size of files: {said}"
        raise CdiError(f"{directory}: {python.path} can't byte-compile the release: {said}")
    binaries = os.path.join(directory, "bin")
    os.makedirs(binaries, exist_ok=True)
    for entry in os.scandir(binaries):
        if not entry.is_file(follow_symlinks=False):  # for example a FIFO, on which open would wait
            discard(entry.path)
    trials = {name: os.path.join(binaries, f".{name}.new") for name in launchers}
    for name, text in launchers.items():
        with open(trials[name], "w", encoding="utf-8") as file:
            file.write(text)
    for path, _directories, names in os.walk(directory):
        for name in names:
            sync(os.path.join(path, name), 0o755 if path == binaries else 0o644)
        sync(path, 0o755)
    smoke_run(trials, release, run)
    _write_pages(directory, trials[FLEET_CDI], run)
    for name, trial in trials.items():
        os.rename(trial, os.path.join(binaries, name))
    for name in os.listdir(binaries):
        if name not in launchers:
            discard(os.path.join(binaries, name))
    sync(binaries)
    files.replace(os.path.join(directory, sums.SUMS), sums.render(directory))


def _write_pages(directory: str, command: str, run: Run) -> None:
    """Let the release in `directory` write its manual page and the completion of shells: this package can't."""
    status, out, err = run([command, "pages"])
    if status != 0:
        raise CdiError(f"{command}: pages failed (exit status {status}: {' '.join((err or out).split())[-400:]})")
    share = os.path.join(directory, "share")
    discard(share)
    os.mkdir(share)
    for name, text in json.loads(out).items():
        path = os.path.join(share, os.path.basename(name))
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
        sync(path, 0o644)
    sync(share, 0o755)


def smoke_run(paths: Mapping[str, str], release: str, run: Run) -> None:
    """Run launchers (name -> path) as their callers would. Raises CdiError unless they work.

    fleet-cdi and cdi-hook must tell their release; releases from before cdi-hook don't have it. The plugins differ only
    in their names, so only one must answer.
    """
    plugins = sorted(name for name in paths if name not in (FLEET_CDI, CDI_HOOK, SLURM_JOB))
    trials = [([paths[name], "--version"], paths[name], release) for name in (FLEET_CDI, CDI_HOOK) if name in paths]
    trials += [(["/usr/bin/env", "CDI_COMMAND=VERSION", paths[name]], paths[name], "}") for name in plugins[:1]]
    for command, path, expected in trials:
        try:
            status, out, err = run(command)
        except OSError as error:
            raise CdiError(
                f"{path}: can't run it: {error.strerror}; expected a file system that is not mounted noexec"
            ) from None
        if status != 0 or not out.strip().endswith(expected):
            said = " ".join((err or out).split())[-400:]
            tried = next(word for word in command[1:] if word != path)
            raise CdiError(
                f"{path}: {tried} failed (exit status {status}: {said}); release {release} was not activated"
            )
