# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error codes of the 2017 protocol. The id is FC2000 and the code; `details` of a reply says what it is about."""

from __future__ import annotations

from ..protocol import errors
from .explanation import Explanation

INFO = "ansible-doc -t module fleet.cdi.cdi_plugin_info"


def _code(code: int, means: str, why: str, do: str, more: str) -> Explanation:
    """Return the explanation of a code; its title is the message of the protocol."""
    return Explanation(f"FC{2000 + code}", errors.MESSAGES[code], (f"(error {code})",), means, why, do, more)


EXPLANATIONS = (
    _code(
        errors.VERSION,
        "The caller asks for a version of the protocol that this plugin does not speak.",
        "Both sides have to mean the same by each field.",
        "Ask with CDI_COMMAND=VERSION, and use one of `supportedVersions`.",
        INFO,
    ),
    _code(
        errors.CONFIG_VERSION,
        "`cdiVersion` of the configuration is not the one of the call, or is unknown.",
        "Both sides have to mean the same by each field.",
        "Write the configuration again with module fleet.cdi.cdi_plugin.",
        INFO,
    ),
    _code(
        errors.COMMAND,
        "CDI_COMMAND is not one of VERSION, INFO, ADD and DEL.",
        "The plugin does not guess.",
        "Correct CDI_COMMAND.",
        INFO,
    ),
    _code(
        errors.RESOURCE_SPEC,
        "The request names a resource, or an amount, that this plugin does not have.",
        "A request gets exactly what it asks for, or nothing.",
        "Ask INFO for the resources of the plugin, and correct CDI_REQUEST.",
        "fleet-cdi devices",
    ),
    _code(
        errors.REQUEST_ID,
        "The plugin has no grant with this request-id, or needs one.",
        "A DEL of an unknown request is an error only where the protocol says so.",
        "Look at the list of grants. If it is not there, nothing has to be given back.",
        "fleet-cdi grants list",
    ),
    _code(
        errors.UNFULFILLED,
        "The devices can't be granted: too few are free, or one that was granted is gone.",
        "A request gets all its devices, or none.",
        "Wait for others to give devices back, ask for less, or repair the device that `details` names.",
        "fleet-cdi devices --free",
    ),
    _code(
        errors.INVENTORY,
        "There is no list of devices that was made in this boot.",
        "After a reboot a device may have another number. A grant from an old list could give the wrong one.",
        "Run `fleet-cdi refresh`, and check that its unit runs at boot.",
        "systemctl status fleet-cdi-refresh.service",
    ),
    _code(
        errors.STORE,
        "The store of grants can't be read or written.",
        "A grant counts only when it is on disk.",
        "Do what `details` says: free space, run as root, or repair the store.",
        "fleet-cdi doctor",
    ),
    _code(
        errors.OWNER,
        "The kind of these devices belongs to another owner, such as the device plugin of Kubernetes.",
        "Two systems that hand out the same devices would do it twice.",
        "`fleet-cdi grants give KIND OWNER`, when nothing of the kind is granted.",
        "fleet-cdi grants list",
    ),
    _code(
        errors.SETUP,
        "A setup command of the configuration failed, and the grant was undone.",
        "A device that is not prepared must not reach a container.",
        "Run the command that `details` names by hand, and correct it.",
        "fleet-cdi grants list",
    ),
    _code(
        errors.TEARDOWN,
        "A teardown command failed, and the device is withheld.",
        "The next user could find data or settings of the last one.",
        "Correct the command, then DEL again. Or repair the device and run `fleet-cdi grants release DEVICE`.",
        "fleet-cdi grants list",
    ),
    _code(
        errors.DELEGATION,
        "Another plugin that was asked failed, or does not answer by the protocol.",
        "A grant in a chain counts only if every plugin agrees.",
        "`details` has the words of that plugin. Call it alone to see them.",
        INFO,
    ),
    _code(
        errors.CONTENT,
        "A variable of the environment, or the configuration, breaks the protocol.",
        "A wrong value is refused before anything is granted.",
        "Correct the field that `details` names.",
        "fleet-cdi doctor",
    ),
    _code(
        errors.TIME,
        "The call, or a command or plugin that it started, took longer than its limit.",
        "A container runtime waits for the answer.",
        "Find out what hangs: `details` names it. Then repeat the call.",
        "fleet-cdi grants list",
    ),
    _code(
        errors.IN_USE,
        "The request-id has a grant with other amounts, or its ADD or DEL is not finished.",
        "A repeated call has to give the same answer.",
        "Use another request-id, or DEL the first one.",
        "fleet-cdi grants list",
    ),
    _code(
        errors.INTERNAL,
        "The plugin failed in a way that its authors did not foresee.",
        "It ends instead of going on in an unknown state.",
        "Please report it with `details` and the output of `fleet-cdi bundle`.",
        "fleet-cdi bundle --list",
    ),
)
