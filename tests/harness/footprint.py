# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the host as it was before? Tests may not leave anything, nor take anything, where fleet.cdi works on real hosts.

footprint.py [ROOT]    prints what lies there now, one line for each file
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Mapping

# What fleet.cdi writes, or edits, on a host whose settings name no other paths.
PLACES = (
    "/etc/cdi",
    "/etc/fleet-cdi",
    "/etc/containerd",
    "/etc/containers",
    "/etc/crio",
    "/etc/docker",
    "/etc/systemd/system",
    "/etc/udev/rules.d",
    "/opt/cdi",
    "/run/cdi",
    "/run/cdi-device-plugin",
    "/run/cdi-inventory.d",
    "/run/cdi-inventory.json",
    "/run/cdi-refresh.wanted",
    "/run/fleet-cdi-openers.socket",
    "/run/systemd/system",
    "/run/udev/cdi-refresh.wanted",
    "/run/udev/rules.d",
    "/usr/local/bin/fleet-cdi",
    "/usr/local/share/bash-completion/completions/fleet-cdi",
    "/usr/local/share/man/man8/fleet-cdi.8",
    "/usr/local/share/zsh/site-functions/_fleet-cdi",
    "/var/lib/cdi",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/plugins_registry",
)


def look(root: str = "/") -> dict[str, str]:
    """What is in PLACES: path -> mode, owner and content, in one word each. Directories count by what is in them."""
    found: dict[str, str] = {}
    for place in PLACES:
        top = os.path.join(root, place.lstrip("/"))
        paths = [top] if not os.path.isdir(top) or os.path.islink(top) else []
        for directory, names, files in os.walk(top):
            links = [name for name in names if os.path.islink(os.path.join(directory, name))]
            paths += [os.path.join(directory, name) for name in (*links, *files)]
        found.update((path, text) for path in paths if (text := _word(path)))
    return found


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What differs, one line for each path; empty where the host is as before."""
    lines = []
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            what = "is new" if path not in before else "is gone" if path not in after else "was changed"
            lines.append(f"{path}: {what}")
    return lines


def _word(path: str) -> str:
    """Mode, owner and content of one file; "" for one that is not there (any more)."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:
                content = hashlib.sha256(file.read()).hexdigest()
        else:
            content = ""
    except FileNotFoundError:
        return ""
    return f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {content}"


if __name__ == "__main__":
    for path, text in sorted(look(*sys.argv[1:2]).items()):
        print(path, text)
