# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""release.py ARCHIVE: write the archive of this checkout's release, and beside it what installs it in an image.

The archive is what module fleet.cdi.host_release sends to a host, and release.json its options: Containerfile runs the
module's other half from the archive. Needs Python 3.9 and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# The image finds everything of its node below /host.
OPTIONS = {
    "state": "present",
    "prefix": "/opt/cdi",
    "python": "/usr/bin/python3",
    "command_link": False,
    "parts": ["device_plugin"],
    "supported_only": False,
    "distributions": {},
    "state_dir": "/var/lib/cdi",
    "device_list": "/host/run/fleet-cdi/inventory.json",
    "spec_dirs": ["/host/etc/cdi", "/host/run/cdi"],
    "archive": "/tmp/release/release.zip",
}


def main(path: str) -> None:
    """Write both files."""
    with tempfile.TemporaryDirectory() as place:  # the checkout under the name that its code is imported by
        os.makedirs(os.path.join(place, "ansible_collections/fleet"))
        os.symlink(CHECKOUT, os.path.join(place, "ansible_collections/fleet/cdi"))
        sys.path.insert(0, place)
        from ansible_collections.fleet.cdi.plugins.module_utils.release import build

        release = build.build(os.path.join(CHECKOUT, "plugins/module_utils"))
        archive = build.pack(release)
    directory = os.path.dirname(os.path.abspath(path))
    os.makedirs(directory, exist_ok=True)
    with open(path, "wb") as file:
        file.write(archive)
    with open(os.path.join(directory, "release.json"), "w", encoding="utf-8") as file:
        json.dump({"options": {**OPTIONS, "release": release.id}, "check": False}, file)
    sys.stdout.write(f"{release.id}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.dont_write_bytecode = True
    main(sys.argv[1])
