# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts of `bin/fleet-cdi`, `bin/slurm-job`, `bin/cdi-hook` and the executables of the CDI proposal of 2017."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..protocol.pools import PROFILES
from ..records import CdiError

# Characters that sh's double quotes or Python's triple quotes would change (see _TRAMPOLINE).
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\"'$\\`]")

# binfmt_script: the kernel cuts a longer first line (127 bytes before Linux 5.1) and splits it at the first blank.
_LONGEST = 127

_DIRECT = "#!{python} {flags}\n"

# The trick is pip's: sh runs the second line; for Python, the second and third line are a string.
_TRAMPOLINE = "#!/bin/sh\n'''exec' \"{python}\" {flags} \"$0\" \"$@\"\n' '''\n"

# The installation makes the byte code; nothing may appear in the directory later.
_BODY = """\
# Written by fleet.cdi.host_release; run it with other options instead of changing this file.
import os
import sys

sys.dont_write_bytecode = True
RELEASE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, RELEASE)


def broken(error):
    # Names what keeps the release from running, by its list of digests. Exit status 2: 1 would mean findings.
    import hashlib
    import traceback

    changed = []
    try:
        with open(os.path.join(RELEASE, "SHA256SUMS"), encoding="utf-8") as lines:
            for line in lines:
                digest, _blanks, name = line.strip().partition("  ")
                path = os.path.join(RELEASE, name)
                try:
                    with open(path, "rb") as file:
                        same = hashlib.sha256(file.read()).hexdigest() == digest
                except OSError:
                    same = False
                changed += [] if same or digest.startswith("#") else [path]
    except (OSError, UnicodeError):
        changed = []  # then it is no more than what Python says
    if not changed:
        traceback.print_exception(type(error), error, error.__traceback__)
        return 2
    more = f" (and {len(changed) - 1} more)" if changed[1:] else ""
    print(
        f"fleet-cdi: {changed[0]}{more}: was changed or removed since the release was installed, which can't run now "
        f"({type(error).__name__}: {error}). Install it again: `ansible-playbook fleet.cdi.provision`. [FC1766]",
        file=sys.stderr,
    )
    return 2


try:
    from ansible_collections.fleet.cdi.plugins.module_utils.cli.start import main

    status = main(sys.argv[1:], os.path.basename(RELEASE), {defaults})
except Exception as error:
    status = broken(error)
sys.exit(status)
"""

# -S: they don't use site-packages, and searching it takes as long as all of their own work.
_PLUGIN = """\
# Written by fleet.cdi.host_release; run it with other options instead of changing this file.
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.main import main

main("{name}", {defaults})
"""

# Every container with a hook of ours waits for it: -S, as above. A runtime may have given it the environment of the
# image. Then the dynamic linker has obeyed that already, and would again at the next library (_ctypes loads libffi), so
# it starts once more without. The names that are left out of that are a spec's own, and what sh and Python set.
_HOOK = """\
# Written by fleet.cdi.host_release; run it with other options instead of changing this file.
import os
import sys

if not os.environ.keys() <= {"PATH", "LC_CTYPE", "PWD", "OLDPWD", "SHLVL", "_"}:
    os.execve(sys.executable, [sys.executable, "-IS", os.path.abspath(__file__), *sys.argv[1:]], {})
sys.dont_write_bytecode = True
RELEASE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, RELEASE)
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.main import main

main(sys.argv[1:], os.path.basename(RELEASE))
"""

_DEFAULTS = re.compile(r"^    status = main\(sys\.argv\[1:\], [^{]*(\{.*\})\)$", re.MULTILINE)  # as in _BODY

FLEET_CDI = "fleet-cdi"
CDI_HOOK = "cdi-hook"
SLURM_JOB = "slurm-job"  # slurm.conf takes a path without arguments for Prolog and Epilog


def texts(python: str, defaults: Mapping[str, Any]) -> dict[str, str]:
    """Return every launcher of a release: name -> text. Raises CdiError like `text`."""
    return {
        FLEET_CDI: text(python, defaults),
        CDI_HOOK: _script(python, "-IS", _HOOK, defaults),
        SLURM_JOB: _script(python, "-IS", _BODY.replace("sys.argv[1:]", '["slurm", "job"]'), defaults),
        **{name: _script(python, "-IS", _PLUGIN.replace("{name}", name), defaults) for name in PROFILES},
    }


def text(python: str, defaults: Mapping[str, Any]) -> str:
    """Return the launcher that runs under `python` and passes `defaults` to the command line.

    `defaults` are strings and lists of strings. -I excludes the user's PYTHON* variables, site directory and the
    current directory; -S leaves it to cli.start to look for packages. Raises CdiError for an interpreter that a script
    can't name.
    """
    return _script(python, "-IS", _BODY, defaults)


def defaults_of(launcher: str) -> dict[str, Any]:
    """Return the defaults in the text of `bin/fleet-cdi`; {} if the text is not ours."""
    found = _DEFAULTS.search(launcher)
    try:
        return dict(json.loads(found[1])) if found else {}
    except ValueError:
        return {}


def _script(python: str, flags: str, body: str, defaults: Mapping[str, Any]) -> str:
    if not python.startswith("/") or _UNUSABLE.search(python):
        raise CdiError(
            f"python: found {python!r}; expected an absolute path without quotes, $, \\ and control characters"
        )
    direct = _DIRECT.format(python=python, flags=flags)
    blank = re.search(r"\s", python)
    first = _TRAMPOLINE.format(python=python, flags=flags) if blank or len(direct.encode()) > _LONGEST else direct
    return first + body.replace("{defaults}", json.dumps(defaults, sort_keys=True))
