# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make importer`: what Galaxy and Automation Hub say when they import the collection: no error, and no warning.

importer.py COPY    where COPY is the collection at .../ansible_collections/fleet/cdi (tests/harness/mirror.py)

galaxy-importer reads the archive as a site does: metadata, tags, changelog, documentation of all plugins, metadata of
execution environments, and ansible-lint with its own options. flake8 is off, as on the sites: ruff checks that here.

The importer (0.4.44) gives ansible-lint .../ansible_collections as the path of collections, and ansible-lint (26.10)
appends ansible_collections once more. So there it finds no playbook by its full name, and says "Failed to find
fleet.cdi.provision playbook" for each file that imports one. .ansible-lint therefore leaves out those two folders.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOUND = re.compile(r"^(WARNING|ERROR|CRITICAL)\b.*$", re.MULTILINE)
DONE = "Importer processing completed successfully"
SETTINGS = {"GALAXY_IMPORTER_CHECK_REQUIRED_TAGS": "true", "GALAXY_IMPORTER_RUN_FLAKE8": "false"}


def main(copy: Path) -> int:
    """Build the archive and import it; 1 if the importer says anything."""
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-") as directory:  # the importer writes its result there
        build = ["ansible-galaxy", "collection", "build", "--output-path", directory, str(copy)]
        subprocess.run(build, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        (archive,) = Path(directory).glob("*.tar.gz")
        run = [sys.executable, "-m", "galaxy_importer.main", str(archive)]
        environment = {**os.environ, **SETTINGS}
        done = subprocess.run(run, check=False, cwd=directory, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    found = [line[0] for line in FOUND.finditer(said)]
    if found or done.returncode or DONE not in said:
        print("\n".join(found) or said)
        return 1
    print("importer: no error and no warning")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
