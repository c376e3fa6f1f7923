# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an archive to a release that has run once: unpack, byte-compile, try. Private API of fleet.cdi."""

from __future__ import annotations

import io
import os
import shutil
import zipfile

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release.contents import identify
from ansible_collections.fleet.cdi.plugins.module_utils.release.host import Interpreter, Run
from ansible_collections.fleet.cdi.plugins.module_utils.release.tree import at, discard, sync


def unpack(prefix: str, release: str, archive: bytes, python: Interpreter, launcher: str, run: Run) -> None:
    """Make `<prefix>/lib/<release>` of `archive`; whatever has that name already makes way."""
    sources = _read(archive, release)
    partial, old, directory = (
        at(prefix, f".partial-{release}"),
        at(prefix, f".partial-{release}.old"),
        at(prefix, release),
    )
    try:
        for name, content in sources.items():
            path = os.path.join(partial, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(content)
        prepare(partial, release, python, launcher, run)
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)  # on a full disk this is what helps
        raise
    if os.path.lexists(directory):
        os.rename(directory, old)
    os.rename(partial, directory)
    sync(at(prefix))
    discard(old)


def _read(archive: bytes, release: str) -> dict[str, bytes]:
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


def prepare(directory: str, release: str, python: Interpreter, launcher: str, run: Run) -> None:
    """Byte-compile the release in `directory`, bring it to disk, and give it its launcher once that has run."""
    command = [python.path, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    # Tracebacks then show the final path.
    command += ["-s", directory, "-p", os.path.join(os.path.dirname(directory), release)]
    status, out, err = run([*command, os.path.join(directory, "ansible_collections")])
    if status != 0:
        raise CdiError(
            f"{directory}: {python.path} can't byte-compile the release: {' '.join((out + err).split())[-400:]}"
        )
    binaries = os.path.join(directory, "bin")
    trial = os.path.join(binaries, ".fleet-cdi.new")
    os.makedirs(binaries, exist_ok=True)
    with open(trial, "w", encoding="utf-8") as file:
        file.write(launcher)
    for path, _directories, names in os.walk(directory):
        for name in names:
            sync(os.path.join(path, name), 0o755 if path == binaries else 0o644)
        sync(path, 0o755)
    smoke_run(trial, release, run)
    os.rename(trial, os.path.join(binaries, "fleet-cdi"))
    sync(binaries)


def smoke_run(launcher: str, release: str, run: Run) -> None:
    """Run `launcher` as an operator would. Raises CdiError unless it says which release it is."""
    try:
        status, out, err = run([launcher, "--version"])
    except OSError as error:
        raise CdiError(
            f"{launcher}: can't run it: {error.strerror}; expected a file system that is not mounted noexec"
        ) from None
    if status != 0 or not out.strip().endswith(release):
        said = " ".join((err or out).split())[-400:]
        raise CdiError(
            f"{launcher}: --version failed (exit status {status}: {said}); release {release} was not activated"
        )
