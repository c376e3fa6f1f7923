# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let the release's own code on the host do the work of a module. Only modules import this.

A module has only its documentation, its argument spec and this file, so its payload does not grow with the collection.
The code that it calls lies precompiled in `<prefix>/lib/<release>`. If that is missing (a first run, check mode on a
fresh host, a module used without the role) the module answers `needs_archive`, and its action plugin runs it again with
the release's archive, from which Python imports directly. This installs nothing.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from typing import Any, Optional

# The action plugin sets these; docs/architecture.md, section 5.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "prefix": {"type": "path", "default": "/opt/cdi"},
    "release": {"type": "str"},
    "archive": {"type": "path"},
}

# The Python of the distribution's package python3-pyudev.
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")

FROM_ARCHIVE = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from ansible_collections.fleet.cdi.plugins.module_utils.cli.call import main; sys.exit(main(sys.argv[2]))"
)


def run(module: Any, call: str) -> Any:
    """Let the release do `call` (a key of cli/call.py's CALLS) with the module's parameters; end the module."""
    command = _command(module, call)
    if command is None:
        return module.exit_json(changed=False, needs_archive=True)
    request = json.dumps({"options": module.params, "check": module.check_mode, "verbosity": module._verbosity})
    try:
        status, out, err = module.run_command(command, data=request, handle_exceptions=False)
    except OSError:  # the launcher's interpreter is missing, for example after an upgrade of the distribution
        return module.exit_json(changed=False, needs_archive=True)
    try:
        answer = json.loads(out)
    except ValueError:
        if not module.params["archive"]:  # a damaged installation; the archive is whole
            return module.exit_json(changed=False, needs_archive=True)
        said = ascii(err.strip().split("\n")[-1] or "nothing")
        return module.fail_json(msg=f"{command[0]}: exit status {status} and no answer to {call}: {said}", stderr=err)
    for warning in answer.get("warnings", ()):
        module.warn(warning)
    if "error" in answer:
        return module.fail_json(msg=answer["error"])
    result = answer["result"]
    if not module._diff:
        result.pop("diff", None)
    return module.exit_json(**{"changed": False, **result})


def _command(module: Any, call: str) -> Optional[list[str]]:
    """Return the command that runs the release's code; None if the release is neither installed nor sent."""
    launcher = os.path.join(module.params["prefix"], "lib", module.params["release"] or "", "bin", "fleet-cdi")
    if module.params["archive"]:
        return [_python(module), "-I", "-c", FROM_ARCHIVE, module.params["archive"], call]
    return [launcher, "call", call] if module.params["release"] and os.path.exists(launcher) else None


def _python(module: Any) -> str:
    """Return an interpreter with pyudev: this one, or the system's; this one if both lack it."""
    if not find_spec("pyudev"):
        for python in SYSTEM_PYTHONS:
            if os.path.exists(python) and module.run_command([python, "-I", "-c", "import pyudev"])[0] == 0:
                return python
    return sys.executable
