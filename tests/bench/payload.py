# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible sends to a host for each module of the collection, beside what it sends for one that does nothing.

Prints one JSON object per module: {"bench", "case", "unit", "value", "baseline", "ratio"}. Built by ansible-core's own
builder, so it has to run in an environment that has ansible-core (`make bench`), and in a process of its own: Ansible's
import hook changes what `ansible_collections` means.

    payload.py                 the sizes
    payload.py --files NAME    which of our files a module brings, each with its share of the bytes sent
"""

from __future__ import annotations

import base64
import io
import re
import sys
import tempfile
import zipfile
from pathlib import Path

from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
from measure import line

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = CHECKOUT / "build/pythonpath/ansible_collections/fleet/cdi/plugins/modules"
NOTHING = """\
#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule

if __name__ == "__main__":
    AnsibleModule(argument_spec={}).exit_json()
"""


def payload(path: Path) -> bytes:
    """The text that Ansible sends for the module at `path`, with its default compression and no arguments."""
    built = modify_module(
        module_name=path.stem,
        module_path=str(path),
        module_args={},
        templar=Templar(loader=DataLoader()),
        task_vars={"ansible_python_interpreter": "/usr/bin/python3"},
        module_compression="ZIP_DEFLATED",
    )
    # A tuple before ansible-core 2.19.
    return built[0] if isinstance(built, tuple) else built.b_module_data


def files(path: Path) -> list[tuple[str, int]]:
    """Our files in the payload with their bytes in it, largest first: the text is a zip archive in base64."""
    archive = max(re.findall(rb"[A-Za-z0-9+/=]+", payload(path)), key=len)
    entries = zipfile.ZipFile(io.BytesIO(base64.b64decode(archive))).infolist()
    ours = [(entry.filename, entry.compress_size * 4 // 3) for entry in entries if "fleet/cdi/" in entry.filename]
    return sorted(ours, key=lambda item: -item[1])


def measure() -> None:
    """Print the line of every module: its size against that of a module that does nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        nothing = Path(scratch) / "ansible_collections/bench/floor/plugins/modules/nothing.py"
        nothing.parent.mkdir(parents=True)
        nothing.write_text(NOTHING)
        floor = len(payload(nothing))
    for path in sorted(MODULES.glob("*.py")):
        line(path.stem, "bytes", len(payload(path)), floor)


def main(arguments: list[str]) -> None:
    """The command line."""
    _AnsibleCollectionFinder(paths=[str(CHECKOUT / "build/pythonpath")])._install()
    if arguments[:1] == ["--files"]:
        for name, size in files(MODULES / f"{arguments[1]}.py"):
            print(f"{size:>7} {name}")
    else:
        measure()


if __name__ == "__main__":
    main(sys.argv[1:])
